import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { type Operator, type OperatorOptions, openOperator, type TaskId } from '../../src/operator.ts';
import { listAudit, pruneAudit } from '../../src/statements/audit.ts';
import { auditRows, insertDead } from '../support/dead.ts';
import { allRows, claimRow, insertRow, readLaneOf, rowOf, writeLaneOf } from '../support/rows.ts';
import { TEST_SCHEMA } from '../support/schema.ts';
import { testTasks } from '../support/tasks.ts';
import { test as databaseTest, expect } from '../support/test.ts';

const table = sql.table(`${TEST_SCHEMA}.async_audit`);

const test = databaseTest.extend<{ operator: Operator }>({
  operator: async ({ database }, use) => {
    const operator = await openOperator({ database: database.url, schema: TEST_SCHEMA, actor: 'cli:ada' });
    await use(operator);
    await operator.close();
  },
});

/** Every deed there is, each of which can be done once to what `prepare` makes. */
const DEEDS = {
  'dead.replay': async (operator, { dead: [first] }) => operator.replay(first),
  'dead.replay of one with a key': async (operator, { keyed }) => operator.replay(keyed),
  'dead.drop': async (operator, { dead: [first] }) => operator.drop(first),
  'dead.replay of many': async (operator) => operator.replayMany({ type: 'plain' }),
  'dead.drop of many': async (operator) => operator.dropMany({ type: 'plain' }),
  'queue.pause': async (operator) => operator.pauseQueue('low'),
  'queue.resume': async (operator) => operator.resumeQueue('paused'),
  'queue.weight': async (operator) => operator.setQueueWeight('low', 3),
  'task.enqueue': async (operator) => operator.enqueue(testTasks, { type: 'fragile', payload: {} }),
} satisfies Record<string, (operator: Operator, made: Made) => Promise<unknown>>;

interface Made {
  readonly dead: readonly [TaskId, TaskId];
  readonly keyed: TaskId;
}

const EXPECTED = {
  'dead.replay': ({ dead: [first] }) => ({ subject: first, detail: { type: 'plain', queue: 'default' } }),
  'dead.replay of one with a key': ({ keyed }) => ({
    subject: keyed,
    detail: { type: 'plain', queue: 'default' },
  }),
  'dead.drop': ({ dead: [first] }) => ({ subject: first, detail: { type: 'plain', queue: 'default' } }),
  'dead.replay of many': ({ dead, keyed }) => ({
    subject: null,
    detail: { filter: { type: 'plain' }, replayed: 3, keyTaken: 0, changed: 0, ids: [...dead, keyed] },
  }),
  'dead.drop of many': ({ dead, keyed }) => ({
    subject: null,
    detail: { filter: { type: 'plain' }, dropped: 3, changed: 0, ids: [...dead, keyed] },
  }),
  'queue.pause': () => ({ subject: 'low', detail: { old: null, new: expect.stringMatching(/^20.*Z$/) } }),
  'queue.resume': () => ({ subject: 'paused', detail: { old: '2026-01-31T09:00:00.000Z', new: null } }),
  'queue.weight': () => ({ subject: 'low', detail: { old: null, new: 3 } }),
  'task.enqueue': () => ({
    subject: expect.stringMatching(/^\d+$/),
    detail: { type: 'fragile', queue: 'fragile', status: 'enqueued' },
  }),
} satisfies Record<keyof typeof DEEDS, (made: Made) => object>;

for (const name of Object.keys(DEEDS) as (keyof typeof DEEDS)[]) {
  test(`${name} leaves one row of the audit, with who did what to what`, async ({ db, operator }) => {
    const made = await prepare(db);
    await DEEDS[name](operator, made);

    const [action] = name.split(' ');
    expect(await auditRows(db)).toEqual([{ actor: 'cli:ada', action, ...EXPECTED[name](made) }]);
  });

  test(`${name} is not done when it cannot be audited`, async ({ db, operator }) => {
    const made = await prepare(db);
    const before = await everything(db);
    await sql`alter table ${table} add constraint no_room check (false) not valid`.execute(db);

    await expect(DEEDS[name](operator, made)).rejects.toMatchObject({ code: '23514' });

    expect(await everything(db)).toEqual(before);
  });
}

test('what is refused or changes nothing leaves no row', async ({ db, operator }) => {
  const waiting = await insertRow(db);
  const [running] = (await insertDead(db, 1, { attemptCount: 0 })) as [TaskId];
  await claimRow(db, running);
  const [blocked] = (await insertDead(db, 1, { key: 'k' })) as [TaskId];
  const key = { key: 'k', while: 'live' } as const;
  const task = { type: 'plain', payload: {} };
  await operator.enqueue(testTasks, task, { unique: key });
  await operator.pauseQueue('low');
  await operator.setQueueWeight('low', 3);
  await sql`truncate ${table}`.execute(db);

  for (const id of [waiting, running, '999999' as TaskId]) {
    expect(await operator.replay(id)).toBe('refused');
    expect(await operator.drop(id)).toBe('refused');
  }
  expect(await operator.replay(blocked)).toBe('key_taken');
  expect(await operator.replayMany({})).toMatchObject({ matched: 1, keyTaken: 1 });
  expect(await operator.dropMany({ type: 'brief' })).toMatchObject({ matched: 0 });
  await operator.previewMany({});
  expect(await operator.pauseQueue('low')).toMatchObject({ changed: false });
  expect(await operator.resumeQueue('default')).toBeUndefined();
  expect(await operator.setQueueWeight('low', 3)).toMatchObject({ changed: false });
  expect(await operator.setQueueWeight('default', undefined)).toMatchObject({ changed: false });
  expect(await operator.enqueue(testTasks, task, { unique: key })).toMatchObject({ status: 'existing' });
  const failing = operator.enqueue(testTasks, task, { unique: { ...key, onConflict: 'error' } });
  await expect(failing).rejects.toMatchObject({ code: 'TASK_EXISTS' });
  await expect(operator.enqueue(testTasks, { type: 'plain', payload: { n: 'x' } })).rejects.toMatchObject({
    code: 'PAYLOAD_INVALID',
  });

  expect(await auditRows(db)).toEqual([]);
});

test('an enqueue that replaces a payload is audited as that', async ({ db, operator }) => {
  const unique = { key: 'k', while: 'waiting', onConflict: 'replace' } as const;
  const { id } = await operator.enqueue(testTasks, { type: 'plain', payload: { n: 1 } }, { unique });
  await operator.enqueue(testTasks, { type: 'plain', payload: { n: 2 } }, { unique, queue: 'low' });

  expect((await auditRows(db)).map(({ subject, detail }) => [subject, detail['status']])).toEqual([
    [id, 'enqueued'],
    [id, 'replaced'],
  ]);
  expect(JSON.stringify(await auditRows(db)), 'never a payload').not.toContain('"n"');
  expect(await rowOf(db, id)).toMatchObject({ payload: { n: 2 } });
});

test('the actor is operator unless somebody else is named, and a name that does not fit is refused', async ({
  database,
  db,
}) => {
  const open = (actor?: string) => {
    const options: OperatorOptions = { database: database.url, schema: TEST_SCHEMA };
    return openOperator(actor === undefined ? options : { ...options, actor });
  };
  for (const actor of ['', '  ', 'a\nb', 'a\u0000', 'x'.repeat(201), '\ud800'])
    await expect(open(actor)).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
  const operator = await open();
  await operator.pauseQueue('low');
  await operator.close();

  expect(await auditRows(db)).toMatchObject([{ actor: 'operator' }]);
});

test('the audit is listed newest first, page by page, by actor, action and subject, bulk deeds by each of their ids', async ({
  db,
}) => {
  const ids = await insertDead(db, 12);
  await sql`insert into ${table} (actor, action, subject, detail)
    select 'cli:ada', 'dead.drop', n::text, '{}' from generate_series(1, 9) n
    union all select 'api:bob', 'dead.replay', null, ${JSON.stringify({ ids })}::jsonb
    union all select 'cli:ada', 'queue.pause', 'low', '{"old": null}'`.execute(db);
  const list = async (page: Partial<Parameters<typeof listAudit>[1]>) =>
    (await listAudit(readLaneOf(db), { limit: 20, ...page })).map(({ id }) => id);

  expect(await list({})).toEqual(['11', '10', '9', '8', '7', '6', '5', '4', '3', '2', '1']);
  expect(await list({ limit: 2 })).toEqual(['11', '10']);
  expect(await list({ limit: 2, before: '10' })).toEqual(['9', '8']);
  expect(await list({ actor: 'api:bob' })).toEqual(['10']);
  expect(await list({ action: 'queue.pause' })).toEqual(['11']);
  expect(await list({ subject: '3' })).toEqual(['10', '3']);
  expect(await list({ subject: '12' })).toEqual(['10']);
  expect(await list({ subject: 'low', actor: 'api:bob' })).toEqual([]);
  const [newest] = await listAudit(readLaneOf(db), { limit: 1 });
  expect(newest).toMatchObject({ actor: 'cli:ada', subject: 'low', detail: { old: null } });
  expect(Math.abs((newest?.at.getTime() ?? 0) - Date.now())).toBeLessThan(3_600_000);
});

test('deeds are pruned after a year, and no sooner, in batches of a thousand', async ({ db, operator }) => {
  await sql`insert into ${table} (actor, action, at)
    select 'a', 'dead.drop', now() - interval '366 days' from generate_series(1, 2100)
    union all select 'b', 'dead.drop', now() - interval '364 days'`.execute(db);

  expect(await pruneAudit(writeLaneOf(db))).toBe(1_000);
  await operator.prune({ retentionMs: 86_400_000 });

  expect((await auditRows(db)).map(({ actor }) => actor)).toEqual(['b']);
});

async function prepare(db: Kysely<DB>): Promise<Made> {
  const dead = (await insertDead(db, 2)) as [TaskId, TaskId];
  const [keyed] = (await insertDead(db, 1, { key: 'k' })) as [TaskId];
  await db.insertInto('async_queues').values({ name: 'paused', paused_at: '2026-01-31T09:00:00Z' }).execute();
  return { dead, keyed };
}

async function everything(db: Kysely<DB>): Promise<unknown> {
  const queues = await db.selectFrom('async_queues').selectAll().execute();
  const keys = await db.selectFrom('async_task_keys').selectAll().execute();
  return { tasks: await allRows(db), queues, keys, audit: await auditRows(db) };
}
