import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { type TaskType, tasks } from '../../generated/social/tasks.ts';
import { runCodegen } from '../../src/codegen/codegen.ts';
import { isTaskDefinition } from '../../src/domain/task-definition.ts';
import cronEntries from '../../src/social/cron.ts';
import * as cleanup from '../../src/social/tasks/cleanup.ts';
import * as cron from '../../src/social/tasks/cron.ts';
import * as event from '../../src/social/tasks/event.ts';
import * as item from '../../src/social/tasks/item.ts';
import { describe, expect, test } from '../support/test.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const SOCIAL = path.join(ROOT, 'src/social');
const MINUTE_MS = 60_000;

const definitionOf = (type: TaskType) => tasks[type].definition;

describe('the task types', () => {
  test('are the twenty-six of the design, each in the file of its kind', () => {
    const typesIn = (file: object) =>
      Object.values(file)
        .filter(isTaskDefinition)
        .map(({ type }) => type)
        .sort();
    expect(typesIn(cleanup)).toEqual(['cleanup:s3_delete', 'cleanup:s3_orphan_sweep']);
    expect(typesIn(item)).toEqual(['item:parse', 'link:enrich']);
    expect(typesIn(event)).toEqual([
      'engine:eval_travel_log',
      'engine:eval_user_activated',
      'engine:expire_challenge',
      'engine:replay_challenge',
      'engine:replay_stamp',
      'location:enrich',
    ]);
    expect(typesIn(cron)).toHaveLength(16);
    expect(typesIn(cron).every((type) => type.startsWith('cron:'))).toBe(true);
    expect(Object.keys(tasks)).toHaveLength(26);
  });

  test.for<[TaskType, string]>([
    ['item:parse', 'default'],
    ['link:enrich', 'low'],
    ['location:enrich', 'low'],
    ['cleanup:s3_delete', 'low'],
  ])('%s goes into the queue %s', ([type, queue]) => {
    expect(definitionOf(type).queue).toBe(queue);
  });

  test('each goes into one of the three queues', () => {
    const queues = new Set(Object.values(tasks).map(({ definition }) => definition.queue));
    expect(queues).toEqual(new Set(['critical', 'default', 'low']));
  });

  test.for<TaskType>(['item:parse', 'link:enrich'])('%s may run for three minutes', (type) => {
    expect(definitionOf(type).ceilingMs).toBe(3 * MINUTE_MS);
  });

  test.for<[TaskType, string]>([
    ['item:parse', 'itemId'],
    ['link:enrich', 'itemId'],
    ['location:enrich', 'locationId'],
    ['cleanup:s3_delete', 'key'],
  ])('%s is unique by its %s', ([type, field]) => {
    expect(definitionOf(type).unique).toMatchObject({ by: [field], onConflict: 'skip' });
  });
});

test('the generated code of the app is up to date', async () => {
  const report = await runCodegen({
    cwd: ROOT,
    definitions: ['src/social/tasks/*.ts'],
    outDir: 'generated/social',
    runtime: 'src/index.ts',
    withDatabaseTypes: false,
    check: true,
  });
  expect(report.files.map((file) => file.diff).join('')).toBe('');
  expect(report).toMatchObject({ upToDate: true, problems: [] });
});

describe('the app', () => {
  test('imports nothing of taskq but what its users can import', async () => {
    for (const { file, imported } of await importsBelow(SOCIAL)) {
      const isInside = imported.startsWith(`${SOCIAL}/`);
      const isPublic = PUBLIC.includes(path.relative(ROOT, imported));
      expect(isInside || isPublic, `${file} imports ${imported}`).toBe(true);
    }
  });

  test('whoever enqueues loads no handler, and no task definition loads a service', async () => {
    const enqueuing = await importsBelow(path.join(SOCIAL, 'services'));
    const handlers = `${path.join(SOCIAL, 'handlers')}/`;
    const loading = enqueuing.filter(({ file, imported }) => {
      return imported.startsWith(handlers) && path.basename(file) !== 'wiring.ts';
    });
    expect(loading).toEqual([]);
    const defining = await importsBelow(path.join(SOCIAL, 'tasks'));
    expect(new Set(defining.map(({ imported }) => path.relative(ROOT, imported)))).toEqual(
      new Set(['src/index.ts']),
    );
  });
});

describe('docs/social-app.md', () => {
  test('says of each task type what its definition and its cron entry say', async () => {
    const page = await readFile(path.join(ROOT, 'docs/social-app.md'), 'utf8');
    const rows = page.split('\n').flatMap((line) => {
      const [, type = ''] = /^\| `(\w+:\w+)` \|/.exec(line) ?? [];
      return type in tasks
        ? [{ type: type as TaskType, cells: line.split('|').map((cell) => cell.trim()) }]
        : [];
    });
    expect(rows.map(({ type }) => type).sort()).toEqual(Object.keys(tasks).sort());
    for (const { type, cells } of rows) {
      const { queue, ceilingMs, maxAttempts } = definitionOf(type);
      const entry = cronEntries.entries.find((candidate) => candidate.task === type);
      const said = entry === undefined ? eventRow(cells) : cronRow(cells);
      expect({ type, ...said }).toEqual({
        type,
        queue,
        ceilingMs,
        maxAttempts,
        schedule: entry?.schedule.text,
      });
    }
  });
});

/** `| task type | queue | enqueued by | does |`, with the ceiling and the attempts in the last cell if unusual. */
function eventRow([, , queue, , does = '']: readonly string[]) {
  const minutes = /Ceiling (\d+) min/.exec(does)?.[1] ?? '5';
  const attempts = /(\d+) attempts/.exec(does)?.[1] ?? '20';
  return {
    queue,
    ceilingMs: Number(minutes) * MINUTE_MS,
    maxAttempts: Number(attempts),
    schedule: undefined,
  };
}

/** `| cron entry | every | queue | ceiling | does |`. */
function cronRow([, , every = '', queue, ceiling = '']: readonly string[]) {
  const ms = (text: string) => {
    const [amount, unit = ''] = text.split(' ');
    return Number(amount) * ({ s: 1_000, min: MINUTE_MS, h: 60 * MINUTE_MS }[unit] ?? Number.NaN);
  };
  const schedule = cronEntries.entries.find((entry) => entry.schedule.next(0) === ms(every))?.schedule.text;
  return { queue, ceilingMs: ms(ceiling), maxAttempts: 4, schedule };
}

const PUBLIC = ['src/admin/index.ts', 'src/index.ts', 'src/embedded/index.ts', 'generated/social/tasks.ts'];

/** Every relative import of every file below a folder, resolved. */
async function importsBelow(folder: string): Promise<{ file: string; imported: string }[]> {
  const files = await readdir(folder, { recursive: true });
  const found: { file: string; imported: string }[] = [];
  for (const name of files.filter((file) => file.endsWith('.ts'))) {
    const file = path.join(folder, name);
    const text = await readFile(file, 'utf8');
    for (const [, specifier = ''] of text.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)) {
      found.push({ file, imported: path.resolve(path.dirname(file), specifier) });
    }
  }
  return found;
}
