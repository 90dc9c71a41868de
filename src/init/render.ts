import path from 'node:path';
import { quote } from '../codegen/quote.ts';
import { importSpecifier } from '../codegen/render-tasks.ts';
import type { ImportExtension } from '../codegen/tsconfig.ts';
import { FIRST_TASK, type Layout } from './layout.ts';
import { isRecord, type PackageManager, type PackageManifest } from './project.ts';

/** The scripts of package.json. */
export const SCRIPTS: Readonly<Record<string, string>> = {
  'taskq:codegen': 'taskq codegen',
  'taskq:migrate': 'taskq migrate up',
  'taskq:work': 'taskq work',
};

/** An argument for `taskq enqueue` that the first task accepts. */
export const FIRST_PAYLOAD = '{"name":"Ada"}';

/** For a layout of our own, which has one glob. */
export function renderConfig({ definitions, handlers, out }: Layout): string {
  return `import { defineConfig } from 'taskq';

// The database comes from the environment: DATABASE_URL.
export default defineConfig({
  definitions: ${definitions.map(quote).join(', ')},
  handlers: ${quote(handlers)},
  out: ${quote(out)},
});
`;
}

export function renderFirstTask(): string {
  return `import { defineTask } from 'taskq';
import { z } from 'zod';

// What a task is. It imports no handler, so whoever enqueues loads none.
export const ${FIRST_TASK} = defineTask({
  type: '${FIRST_TASK}',
  payload: z.strictObject({ name: z.string() }),
  ceiling: '1m',
});
`;
}

export function renderHandlers(
  folder: string,
  { handlers, out }: Layout,
  extension: ImportExtension,
): string {
  const from = path.dirname(path.resolve(folder, handlers));
  const specifier = importSpecifier(from, path.resolve(folder, out, 'tasks.ts'), extension);
  return `import { defineHandlers } from ${quote(specifier)};

// One for each task type: a missing or misspelt one does not compile. Pass the signal to everything that waits.
export default defineHandlers({
  ${FIRST_TASK}: async ({ name }, { signal }) => {
    if (!signal.aborted) console.log(\`Hello, \${name}!\`);
  },
});
`;
}

/** The command of the step, which fails when generated files and definitions differ. */
export function ciCommand({ exec }: PackageManager): string {
  return `${exec} taskq codegen --check`;
}

export function renderWorkflow(packageManager: PackageManager): string {
  const commands = [...packageManager.install, ciCommand(packageManager)];
  return `name: taskq
on: [push, pull_request]
jobs:
  codegen:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-node@v4
        with:
          node-version: 22
${commands.map((command) => `      - run: ${command}\n`).join('')}`;
}

/**
 * The text of package.json with scripts added behind its own. Indented and ended as it was; otherwise as npm
 * itself writes it.
 */
export function withScripts({ text }: PackageManifest, scripts: Readonly<Record<string, string>>): string {
  const [mark, json] = text.startsWith('\uFEFF') ? ['\uFEFF', text.slice(1)] : ['', text];
  const values = JSON.parse(json) as Record<string, unknown>;
  const own = isRecord(values['scripts']) ? values['scripts'] : {};
  const indent = /^[{[]\r?\n([ \t]+)/.exec(json)?.[1] ?? '  ';
  const end = /\s*$/.exec(json)?.[0] ?? '';
  const written = JSON.stringify({ ...values, scripts: { ...own, ...scripts } }, null, indent);
  return mark + (json.includes('\r\n') ? written.replaceAll('\n', '\r\n') : written) + end;
}
