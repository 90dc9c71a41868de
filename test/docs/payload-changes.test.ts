import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeAll } from 'vitest';
import { makeProject, REPOSITORY, writeFiles } from '../codegen/project.ts';
import { build, taskq } from '../support/cli.ts';
import { expect, test } from '../support/test.ts';

const PAGE = path.join(REPOSITORY, 'docs/payload-changes.md');

/** The row types are made on a database, which the page is not about. */
const CONFIG = "export default { definitions: ['src/tasks/*.ts'] };\n";

interface Block {
  readonly language: string;
  readonly lines: readonly string[];
}

interface Command {
  readonly words: readonly string[];
  readonly output: readonly string[];
  readonly exitCode: number;
}

function blocksOf(page: string): Block[] {
  return [...page.matchAll(/^```(\w+)\n(.*?)^```$/gms)].map(([, language = '', text = '']) => ({
    language,
    lines: text.trimEnd().split('\n'),
  }));
}

/** `$ taskq …` with the lines below it; `# exit code 1` for one that fails. */
function commandsOf({ lines }: Block): Command[] {
  return lines
    .join('\n')
    .split(/^\$ /m)
    .filter((text) => text !== '')
    .map((text) => {
      const [line = '', ...below] = text.trimEnd().split('\n');
      const words = line.match(/"[^"]*"|'[^']*'|\S+/g)?.map(unquoted) ?? [];
      const exitCode = /^# exit code (\d+)$/.exec(below.at(-1) ?? '')?.[1];
      return {
        words,
        output: exitCode === undefined ? below : below.slice(0, -1),
        exitCode: Number(exitCode ?? 0),
      };
    });
}

function unquoted(word: string): string {
  return /^(["']).*\1$/.test(word) ? word.slice(1, -1) : word;
}

beforeAll(build);

test('the page on changing a payload does what it says, command by command', async ({ database }) => {
  const blocks = blocksOf(await readFile(PAGE, 'utf8'));
  const project = await makeProject({ 'taskq.config.ts': CONFIG });
  let ran = 0;
  for (const block of blocks) {
    if (block.language === 'ts') {
      const [, file = ''] = /^\/\/ (\S+)$/.exec(block.lines[0] ?? '') ?? [];
      await writeFiles(project, { [file]: `${block.lines.join('\n')}\n` });
      continue;
    }
    for (const { words, output, exitCode } of commandsOf(block)) {
      const [program, ...args] = words;
      expect(program).toBe('taskq');
      if (args[0] === 'codegen') args.push('--no-database-types');
      const ended = await taskq(args, { cwd: project, env: { DATABASE_URL: database.url } });
      const printed = `${ended.stdout}${ended.stderr}`.split('\n');
      // The page leaves out what is beside the point, such as progress.
      expect(printed.filter((line) => output.includes(line))).toEqual(output);
      expect(ended.code).toBe(exitCode);
      ran += 1;
    }
  }
  expect(ran).toBe(8);
});
