import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { beforeAll } from 'vitest';
import { REPOSITORY } from '../codegen/project.ts';
import { ALERTS } from '../monitoring/alerts.ts';
import { build, type Ended, start, taskq } from '../support/cli.ts';
import { expect, test } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';
import { type Incident, startIncident } from './incident.ts';

const PAGE = path.join(REPOSITORY, 'docs/runbook.md');
/** The page speaks of the port that workers have in production. */
const METRICS_ON_THE_PAGE = 'http://127.0.0.1:9464';

interface Command {
  readonly line: string;
  /** As on the page; `…` stands for lines, or the rest of a line, that it leaves out. */
  readonly output: readonly string[];
  readonly exitCode: number;
}

/** Some twenty commands, one after the other. */
const WALK_MS_MAX = 300_000;

beforeAll(build);

test('the walk through a bad night shows what its commands answer in that night', {
  timeout: WALK_MS_MAX,
}, async ({ database, db }) => {
  const incident = await startIncident(database, db);
  const env = { DATABASE_URL: database.url };
  const walk = commandsOf(sectionOf(await readFile(PAGE, 'utf8'), 'It is 3 a.m.: the queue is growing'));
  expect(walk.length).toBe(15);
  for (const command of walk.slice(0, -1)) await expectAnswer(command, incident, env);

  const mail = start(['work', '--queues', 'mail', '--roles', 'processor'], { cwd: incident.project, env });
  await mail.until(/listening for wakes/);
  const remaining = () =>
    db.selectFrom('async_tasks').select('id').where('task_type', 'in', ['send_mail', 'clean_up']);
  await waitFor(async () => ((await remaining().execute()).length === 0 ? true : undefined), {
    what: 'the queues to drain',
    timeoutMs: 30_000,
  });
  await expectAnswer(walk.at(-1) as Command, incident, env);
});

test('every command that the page and the alerts name in passing exists, with its options', {
  timeout: WALK_MS_MAX,
}, async () => {
  const page = await readFile(PAGE, 'utf8');
  const alerts = ALERTS.map(({ description }) => description.replaceAll(/\{\{.*?\}\}/g, 'name'));
  const text = [page, ...alerts].join('\n');
  const named = new Set([...text.matchAll(/`(taskq [^`]+)`/g)].map(([, line = '']) => line));
  expect(named.size).toBeGreaterThanOrEqual(15);
  for (const line of named) {
    const [, ...words] = wordsOf(line);
    const end = words.findIndex((word) => word.startsWith('-'));
    const { code, stdout } = await taskq([...words.slice(0, end === -1 ? undefined : end), '--help']);
    expect([line, code]).toEqual([line, 0]);
    const subcommands = words.filter((word) => /^[a-z-]+$/.test(word) && !word.startsWith('-'));
    // The usage of a command begins with its name; that of an unknown one is the usage of what is above it.
    expect(stdout).toContain(`taskq ${subcommands[0]}`);
    for (const option of words.filter((word) => word.startsWith('--')))
      expect([line, stdout]).toEqual([line, expect.stringContaining(option)]);
  }
});

test('every link of the page leads to one of its sections, or to a file', async () => {
  const page = await readFile(PAGE, 'utf8');
  const anchors = [...page.matchAll(/^#+ (.+)$/gm)].map(([, title = '']) =>
    title
      .toLowerCase()
      .replaceAll(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  );
  for (const [, target = ''] of page.matchAll(/\]\(([^)]+)\)/g)) {
    const [file = '', anchor] = target.split('#');
    if (file === '') expect(anchors).toContain(anchor);
    else await readFile(path.join(path.dirname(PAGE), file), 'utf8');
  }
});

async function expectAnswer(
  { line, output, exitCode }: Command,
  incident: Incident,
  env: Readonly<Record<string, string>>,
): Promise<void> {
  const ended = await run(line, incident, env);
  const real = `${ended.stdout}${ended.stderr}`.split('\n').map(shapeOf);
  let from = 0;
  for (const shown of output.filter((each) => each !== '…')) {
    const at = real.findIndex((each, index) => index >= from && isLike(each, shapeOf(shown)));
    expect(
      at,
      `${line}: there is no "${shown}" among\n${ended.stdout}${ended.stderr}`,
    ).toBeGreaterThanOrEqual(0);
    from = at + 1;
  }
  // What is not left out is all there is.
  if (!output.includes('…')) {
    expect(
      real.filter((each) => each !== ''),
      line,
    ).toHaveLength(output.length);
  }
  expect([line, ended.code]).toEqual([line, exitCode]);
}

async function run(line: string, incident: Incident, env: Readonly<Record<string, string>>): Promise<Ended> {
  const { project, metricsUrl } = incident;
  if (line.startsWith('taskq ')) return taskq(wordsOf(line).slice(1), { cwd: project, env });
  const here = line.replace(METRICS_ON_THE_PAGE, metricsUrl);
  expect(here).toContain(metricsUrl);
  const { stdout, stderr } = await promisify(execFile)('sh', ['-c', here]);
  return { code: 0, stdout, stderr };
}

/** What stays the same from night to night. */
function shapeOf(line: string): string {
  return line
    .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, '<time>')
    .replaceAll(/\b\d+(?:ms|[smhd])(?: \d+(?:ms|[smhd]))*\b/g, '<duration>')
    .replaceAll(/\d+ of (\d+) slots free/g, '<some> of $1 slots free')
    .replaceAll(/\bcli:\S+/g, '<actor>')
    .replaceAll(/(delay_seconds) [\d.]+/g, '$1 <seconds>')
    .replaceAll(/\s+/g, ' ')
    .trim();
}

/** `…` at the end of what is shown leaves out the rest of the line. */
function isLike(real: string, shown: string): boolean {
  const [beginning = '', rest] = shown.split('…');
  return rest === undefined ? real === shown : real.startsWith(beginning);
}

function sectionOf(page: string, title: string): string {
  const [, section] = page.split(`\n## ${title}\n`);
  return section?.split('\n## ')[0] ?? '';
}

function commandsOf(section: string): Command[] {
  return [...section.matchAll(/^```console\n(.*?)^```$/gms)].flatMap(([, text = '']) =>
    text
      .split(/^\$ /m)
      .filter((each) => each !== '')
      .map((each) => {
        const [line = '', ...below] = each.trimEnd().split('\n');
        const exitCode = /^# exit code (\d+)$/.exec(below.at(-1) ?? '')?.[1];
        return {
          line,
          output: exitCode === undefined ? below : below.slice(0, -1),
          exitCode: Number(exitCode ?? 0),
        };
      }),
  );
}

function wordsOf(line: string): string[] {
  return (line.match(/"[^"]*"|'[^']*'|\S+/g) ?? []).map((word) => word.replace(/^(["'])(.*)\1$/, '$2'));
}
