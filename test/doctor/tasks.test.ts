import { randomUUID } from 'node:crypto';
import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { createCron } from '../../src/index.ts';
import { type ReplicaReport, reportReplica } from '../../src/statements/replicas.ts';
import { registerTypes } from '../../src/statements/task-types.ts';
import { insertDead } from '../support/dead.ts';
import { findingOf, findingsOf } from '../support/doctor.ts';
import { holdTransaction } from '../support/held-transaction.ts';
import { insertRow, insertRows, lapseLease, writeLaneOf } from '../support/rows.ts';
import { testTasks } from '../support/tasks.ts';
import { describe, expect, test } from '../support/test.ts';

/** Records of finished tasks of a type, each of a run of so many milliseconds. */
const recordsOf = (type: string, runs: readonly number[]) => sql`
  insert into taskq.async_completed_tasks (id, queue, task_type, payload, payload_revision, headers, attempt_count,
      errors, created_at, started_at, completed_at, keep_until)
  select (select count(*) from taskq.async_completed_tasks) + n, 'default', ${type}, '{}', 1, '{}', 1, '[]', now(),
      now() - ms * interval '1 millisecond', now(), now() + interval '1 day'
  from unnest(${runs}::float8[]) with ordinality as given(ms, n)`;

/** As where the code of the workers is not at hand. */
const NO_TASKS = { tasks: undefined as never };

const runsOf = (count: number, ms: number): number[] => Array.from({ length: count }, () => ms);

describe('ceilings', () => {
  // The ceiling of `plain` is 5 minutes.
  test.for([
    ['a tenth of the ceiling', 30_000, 'ok'],
    ['a little more than a fifth', 61_000, 'warning'],
    ['a little more than a half', 151_000, 'problem'],
  ] as const)('runs of %s are: %s', async ([, ms, status], { database, db }) => {
    await recordsOf('plain', runsOf(40, ms)).execute(db);
    const finding = await findingOf('ceilings', { database: database.url });
    expect(finding).toMatchObject({
      status,
      found: expect.stringContaining('plain: 99 % of 40 runs within'),
    });
    const better = expect.stringContaining(`a ceiling of about '${ms / 100}s', ten times its worst case`);
    expect(finding.remedies).toEqual(status === 'ok' ? [] : [better]);
  });

  test('one long run among a thousand is no worst case yet', async ({ database, db }) => {
    await recordsOf('plain', [...runsOf(999, 1_000), 290_000]).execute(db);
    expect(await findingOf('ceilings', { database: database.url })).toMatchObject({ status: 'ok' });
  });

  test('are unknown without enough runs, and without definitions', async ({ database, db }) => {
    await recordsOf('plain', runsOf(19, 200_000)).execute(db);
    const few = await findingOf('ceilings', { database: database.url });
    expect(few).toMatchObject({ status: 'unknown', found: expect.stringContaining('20 records') });
    await recordsOf('plain', [200_000]).execute(db);
    const none = await findingOf('ceilings', { database: database.url, ...NO_TASKS });
    expect(none).toMatchObject({ status: 'unknown', remedies: [expect.stringContaining('--handlers')] });
  });
});

describe('unregistered types', () => {
  test('that wait are a warning, and a problem once they have been due for long', async ({
    database,
    db,
  }) => {
    await insertRow(db, { type: 'renamed' });
    await insertRow(db, { type: 'plain', revision: 2, runAtSeconds: 60 });
    await insertDead(db, 1, { type: 'of_old' });
    const young = await findingOf('unregistered-types', { database: database.url });
    expect(young).toMatchObject({
      status: 'warning',
      found: expect.stringMatching(/^revision 2 of plain: 1 task; type renamed: 1 task, due for 1m/),
    });
    await insertRows(db, 2, { type: 'renamed', runAtSeconds: -3_600 });
    const old = await findingOf('unregistered-types', { database: database.url });
    expect(old).toMatchObject({
      status: 'problem',
      found: expect.stringContaining('type renamed: 3 tasks, due for 1h'),
    });
    const unseen = { database: database.url, ...NO_TASKS };
    expect(await findingOf('unregistered-types', unseen)).toMatchObject({ status: 'unknown' });
  });
});

describe('leases', () => {
  test('that ended long ago and were not taken over are a warning, then a problem; those of paused queues neither', async ({
    database,
    db,
  }) => {
    const look = () => findingOf('orphaned-leases', { database: database.url });
    const id = await insertRow(db, { queue: 'nobody', leasedSeconds: 60, attemptCount: 1 });
    await lapseLease(db, id);
    expect(await look()).toMatchObject({ status: 'ok' });
    const lapse = (minutes: number) =>
      sql`update taskq.async_tasks set lease_expires_at = now() - ${minutes} * interval '1 minute'`.execute(
        db,
      );
    await lapse(6);
    expect(await look()).toMatchObject({
      status: 'warning',
      found: 'plain in queue nobody: 1 task, the oldest for 6m',
      remedies: ['see that a worker serves the queue and registers the type: taskq work --queues nobody'],
    });
    await lapse(61);
    expect(await look()).toMatchObject({ status: 'problem' });
    await sql`insert into taskq.async_queues (name, paused_at) values ('nobody', now())`.execute(db);
    expect(await look()).toMatchObject({ status: 'ok' });
  });

  test('that are longer than their type allows are a problem', async ({ database, db }) => {
    const look = (tasks = true) =>
      findingOf('long-leases', { database: database.url, ...(tasks ? {} : NO_TASKS) });
    await insertRow(db, { leasedSeconds: 320, attemptCount: 1 });
    expect(await look()).toMatchObject({ status: 'ok' });
    const id = await insertRow(db, { leasedSeconds: 3_600, attemptCount: 1 });
    expect(await look()).toMatchObject({
      status: 'problem',
      found: expect.stringMatching(
        new RegExp(`^plain: 1 task \\(such as ${id}\\), leased for another (59m|1h)`),
      ),
    });
    expect(await look(false)).toMatchObject({ status: 'ok' });
    await insertRow(db, { leasedSeconds: 90_000, attemptCount: 1 });
    expect(await look(false)).toMatchObject({ status: 'problem' });
  });
});

describe('queues', () => {
  test('that are paused are a warning with what waits in them, and resuming is the remedy', async ({
    database,
    db,
  }) => {
    await sql`insert into taskq.async_queues (name, paused_at, weight) values ('low prio', now() - interval '3 hours', null),
      ('served', null, 3)`.execute(db);
    await insertRows(db, 2, { queue: 'low prio', runAtSeconds: -7_200 });
    const findings = await findingsOf({ database: database.url });
    expect(findings['queues-paused']).toMatchObject({
      status: 'warning',
      found: expect.stringMatching(/^low prio for 3h.*, with 2 due tasks waiting$/),
      remedies: ["taskq queue resume 'low prio'"],
    });
    expect(findings['backlog']).toMatchObject({ status: 'ok' });
  });

  test('whose oldest task has been due for long are a warning while something runs, else a problem; who could take it is said', async ({
    database,
    db,
  }) => {
    const look = () => findingOf('backlog', { database: database.url });
    await insertRow(db, { runAtSeconds: -300 });
    expect(await look()).toMatchObject({ status: 'ok' });
    await insertRow(db, { runAtSeconds: -900 });
    expect(await look()).toMatchObject({
      status: 'problem',
      found: expect.stringMatching(
        /^default: 2 due tasks, the oldest for 15m.*, 0 running, no worker serves it$/,
      ),
      remedies: ['start a worker that serves it: taskq work --queues default'],
    });
    await report(db, { queues: ['other'], slots: 4, busy: 0 });
    expect(await look()).toMatchObject({ found: expect.stringContaining('no worker serves it') });
    await report(db, { slots: 4, busy: 3 });
    expect(await look()).toMatchObject({
      status: 'problem',
      found: expect.stringContaining('1 of 4 slots free'),
      remedies: [expect.stringContaining('the check unregistered-types')],
    });
    await insertRow(db, { leasedSeconds: 60, attemptCount: 1 });
    await sql`update taskq.async_replicas set busy = 4`.execute(db);
    expect(await look()).toMatchObject({
      status: 'warning',
      found: expect.stringContaining('1 running, 0 of 4 slots free'),
      remedies: [expect.stringMatching(/^no slot is free: add workers/)],
    });
  });
});

/** What a worker says of itself. */
async function report(db: Kysely<DB>, of: Partial<ReplicaReport>): Promise<void> {
  await reportReplica(writeLaneOf(db), {
    id: randomUUID(),
    host: 'ada-1',
    pid: 7,
    version: '0.1.0',
    roles: ['processor', 'cron', 'prune'],
    queues: undefined,
    slots: 4,
    busy: 0,
    overrun: 0,
    running: [],
    clockOffsetMs: 0,
    settled: { intervalMs: 15_000, outcomes: {}, waitMs: 0, waited: 0, ranMs: 0, ran: 0 },
    ...of,
  });
}

describe('workers', () => {
  test('that are not there are a warning, and a problem when tasks are due', async ({ database, db }) => {
    const look = () => findingOf('workers', { database: database.url });
    expect(await look()).toMatchObject({ status: 'warning', remedies: ['start one: taskq work'] });
    await insertRow(db);
    expect(await look()).toMatchObject({
      status: 'problem',
      found: expect.stringMatching(/^no worker runs tasks, and 1 task is due/),
    });
    await report(db, { roles: ['cron', 'prune'], slots: 0 });
    expect(await look()).toMatchObject({ status: 'problem' });
    await report(db, { busy: 1 });
    expect(await look()).toMatchObject({ status: 'ok', found: '1 worker with 4 slots, 1 busy' });
    await sql`update taskq.async_replicas set seen_at = now() - interval '1 minute'`.execute(db);
    expect(await look()).toMatchObject({
      status: 'problem',
      found: expect.stringContaining('2 more went silent'),
    });
  });

  test.for([
    [{ overrun: 2 }, 'warning', 'pid 7 on ada-1 has lost 2 slots to handlers past their deadline'],
    [{ roles: ['processor'] }, 'warning', 'no worker has the role prune'],
    [{ clockOffsetMs: 10_000 }, 'warning', 'the clock of pid 7 on ada-1 is 10s behind the database'],
    [{ clockOffsetMs: -31_000 }, 'problem', 'the clock of pid 7 on ada-1 is 31s ahead of the database'],
  ] as const)('that report %j are a %s', async ([of, status, found], { database, db }) => {
    await report(db, of);
    const finding = await findingOf('workers', { database: database.url });
    expect(finding).toMatchObject({ status, found: expect.stringContaining(found) });
    expect(finding.remedies).toHaveLength(1);
  });
});

describe('what workers have registered', () => {
  test('is gone by where their code is not at hand: the newest revision of each type, and its ceiling', async ({
    database,
    db,
  }) => {
    const types = [1, 2].map((revision) => ({
      type: 'plain',
      revision,
      secrets: undefined,
      cursorSecrets: undefined,
      ceilingMs: revision * 100_000,
      maxAttempts: 20,
    }));
    await registerTypes(writeLaneOf(db), types);
    await recordsOf('plain', runsOf(20, 50_000)).execute(db);
    await insertRow(db, { revision: 2 });
    const options = { database: database.url, ...NO_TASKS };
    expect(await findingOf('unregistered-types', options)).toMatchObject({ status: 'ok' });
    expect(await findingOf('ceilings', options)).toMatchObject({
      status: 'warning',
      found: 'plain: 99 % of 20 runs within 50s, ceiling 3m 20s',
    });
    await insertRow(db, { revision: 3 });
    await insertRow(db, { leasedSeconds: 330, attemptCount: 1 });
    const findings = await findingsOf(options);
    expect(findings['unregistered-types']).toMatchObject({
      status: 'warning',
      found: expect.stringContaining('revision 3 of plain: 1 task'),
    });
    expect(findings['long-leases']).toMatchObject({ status: 'problem' });
  });
});

test('tasks whose last run was ended at its deadline are a warning, whether they wait or are dead', async ({
  database,
  db,
}) => {
  const look = () => findingOf('deadlines-reached', { database: database.url });
  const failed = (id: string, ...outcomes: readonly string[]) => {
    const errors = outcomes.map((outcome, n) => ({
      attempt: n + 1,
      at: '2026-01-31T09:00:00Z',
      outcome,
      message: '',
    }));
    return sql`update taskq.async_tasks set errors = ${JSON.stringify(errors)}::jsonb where id = ${id}`.execute(
      db,
    );
  };
  const [waiting = '', dead = ''] = [await insertRow(db, { attemptCount: 2 }), ...(await insertDead(db, 1))];
  await failed(waiting, 'timeout', 'failure');
  expect(await look()).toMatchObject({ status: 'ok' });
  await failed(waiting, 'failure', 'timeout');
  await failed(dead, 'timeout');
  expect(await look()).toMatchObject({ status: 'warning', found: 'plain: 2 tasks' });
});

describe('cron entries', () => {
  const cron = createCron(testTasks, [
    { name: 'often', schedule: '@every 1h', task: 'plain' },
    { name: 'never seen', schedule: '@every 1h', task: 'plain' },
  ]);
  const one = createCron(testTasks, [{ name: 'often', schedule: '@every 1h', task: 'plain' }]);
  /** The tick of so many hours ago, whole ones. */
  const tick = (hoursAgo: number) => sql`
    insert into taskq.async_cron_ticks (entry, tick, outcome, schedule)
    values ('often', to_timestamp(floor(extract(epoch from now() - interval '61 seconds') / 3600) * 3600 - ${hoursAgo * 3_600}::float8),
      'enqueued', '@every 1h')`;

  test('whose latest tick was not taken are a warning, and a problem when it is two', async ({
    database,
    db,
  }) => {
    const look = () => findingOf('cron-entries', { database: database.url, cron: one });
    await tick(2).execute(db);
    expect(await look()).toMatchObject({
      status: 'problem',
      found: expect.stringMatching(/^often: its tick of .* ago was not taken$/),
      remedies: expect.arrayContaining([
        'see that a worker has the role cron and this cron list: taskq work --roles processor,cron,prune',
      ]),
    });
    await tick(1).execute(db);
    expect(await look()).toMatchObject({ status: 'warning' });
    await tick(0).execute(db);
    expect(await look()).toMatchObject({ status: 'ok', found: '1 entry, none late' });
  });

  test('that no scheduler has seen are a warning; without a list, ticks are unknown and none are fine', async ({
    database,
    db,
  }) => {
    expect(await findingOf('cron-entries', { database: database.url })).toMatchObject({ status: 'ok' });
    await tick(0).execute(db);
    expect(await findingOf('cron-entries', { database: database.url, cron })).toMatchObject({
      status: 'warning',
      found: 'never seen: no scheduler has seen it',
    });
    expect(await findingOf('cron-entries', { database: database.url })).toMatchObject({
      status: 'unknown',
      found: '1 entry has ticks, but their schedules are not known',
    });
  });
});

describe('what is past its time', () => {
  test('is a warning: dead letters, records and audit rows, two hours late', async ({ database, db }) => {
    const look = (options = {}) => findingOf('prune', { database: database.url, ...options });
    const dayMs = 86_400_000;
    await insertDead(db, 3, { attemptedSecondsAgo: 86_400 + 3_600 });
    expect(await look({ retentionMs: dayMs })).toMatchObject({ status: 'ok' });
    await insertDead(db, 2, { attemptedSecondsAgo: 86_400 + 3 * 3_600 });
    await recordsOf('plain', [1]).execute(db);
    await sql`update taskq.async_completed_tasks set keep_until = now() - interval '3 hours'`.execute(db);
    await sql`insert into taskq.async_audit (at, actor, action) values (now() - interval '366 days', 'ada', 'x')`.execute(
      db,
    );
    expect(await look({ retentionMs: dayMs })).toMatchObject({
      status: 'warning',
      found: 'past their time: 2 dead letters, 1 record of finished tasks, 1 audit row',
      remedies: expect.arrayContaining(['taskq prune']),
    });
  });

  test('dead letters of the last day are a warning, older ones none', async ({ database, db }) => {
    const look = () => findingOf('dead-letters', { database: database.url });
    expect(await look()).toMatchObject({ status: 'ok', found: 'none' });
    await insertDead(db, 2, { attemptedSecondsAgo: 90_000 });
    expect(await look()).toMatchObject({ status: 'ok', found: '2, none of the last 24 hours' });
    await insertDead(db, 3, { type: 'brief' });
    await insertDead(db, 1);
    expect(await look()).toMatchObject({
      status: 'warning',
      found: '6, 4 of them of the last 24 hours, most of type brief',
      remedies: ['taskq dead list --type brief'],
    });
  });
});

test('a check that the database ends for its length is unknown, with its error', async ({ database, db }) => {
  await using held = await holdTransaction(db);
  await sql`lock table taskq.async_tasks in access exclusive mode`.execute(held.tx);
  const options = { database: database.url, checks: ['backlog', 'server-version'], checkMs: 200 };
  const findings = await findingsOf(options);
  expect(findings['backlog']).toMatchObject({
    status: 'unknown',
    found: expect.stringContaining('canceling statement due to statement timeout'),
  });
  expect(findings['server-version']).toMatchObject({ status: 'ok' });
});
