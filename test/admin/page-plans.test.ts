import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { deadCountStatement, deadPageStatement, NEWEST } from '../../src/statements/dead-pages.ts';
import { overviewStatement } from '../../src/statements/gauges.ts';
import { READ_SETTINGS } from '../../src/statements/read-transaction.ts';
import { auditPageStatement, completedPageStatement } from '../../src/statements/record-pages.ts';
import type { Statement, Values } from '../../src/statements/statement.ts';
import { liveQueuesStatement, STRETCH_STATEMENTS } from '../../src/statements/task-pages.ts';
import { expect, test } from '../support/admin.ts';
import { explain, type Plan } from '../support/plans.ts';
import { TEST_SCHEMA } from '../support/test.ts';

// A tenth of a second at the most, whatever the table holds: pages of 8 kB, since time is the machine's.
const BUFFERS_MAX = 20_000;
/** A page by a high number walks through all those before it. */
const BUFFERS_OF_DEEP_PAGE_MAX = 45_000;

const table = (name: string) => sql.table(`${TEST_SCHEMA}.${name}`);

/** A hundred and fifty thousand live tasks in two queues, as many dead ones, and in both a few of a rare kind. */
async function fill(db: Kysely<DB>): Promise<void> {
  await sql`insert into ${table('async_tasks')} (queue, task_type, payload, run_at, attempt_count, max_attempts, last_error,
      last_attempted_at)
    select case when n % 2 = 0 then 'even' else 'odd' end, 'common', '{"some": "payload"}',
      now() + (n - 75000) * interval '1 second', 0, 20, null, null from generate_series(1, 150000) n`.execute(
    db,
  );
  await sql`insert into ${table('async_tasks')} (queue, task_type, payload, run_at, attempt_count, max_attempts, last_error,
      last_attempted_at)
    select case when n % 2 = 0 then 'even' else 'odd' end, 'common', '{"some": "payload"}',
      now() - n * interval '1 second', 20, 20, 'timed out', now() - interval '1 hour' from generate_series(1, 150000) n`.execute(
    db,
  );
  await sql`insert into ${table('async_tasks')} (queue, task_type, payload, run_at, attempt_count, max_attempts, last_error)
    select 'rare', 'rare', '{}', now() - interval '9 days', 20, 20, 'no such customer' from generate_series(1, 3)`.execute(
    db,
  );
  await sql`insert into ${table('async_completed_tasks')}
    (id, queue, task_type, payload, payload_revision, headers, attempt_count, errors, created_at, keep_until)
    select n, 'even', 'common', '{}', 1, '{}', 1, '[]', now(), now() + interval '1 day' from generate_series(1, 100000) n`.execute(
    db,
  );
  await sql`insert into ${table('async_audit')} (actor, action, subject, detail)
    select 'cli:anna', 'dead.replay', n::text, '{}' from generate_series(1, 100000) n`.execute(db);
}

const NO_FILTER = { type: null, queue: null, olderThanMs: null, newerThanMs: null, error: null, asOf: null };
const AT_THE_HEAD = { beforeMicros: NEWEST.runAtMicros, beforeId: NEWEST.id };
const FROM_THE_OLDEST = { micros: '-62135596800000000', id: '0' };

test('every list reads a bounded number of pages, of a table of any size, with statistics and without', async ({
  db,
}) => {
  await sql`alter table ${table('async_tasks')} set (autovacuum_enabled = off)`.execute(db);
  await fill(db);
  const state = { state: null, type: null, queue: null, limit: 50 };
  const cases: Readonly<Record<string, readonly [Statement<unknown>, Values]>> = {
    newest: [STRETCH_STATEMENTS.newest, { ...state, id: NEWEST.id }],
    'newest of a rare type': [STRETCH_STATEMENTS.newest, { ...state, type: 'rare', id: NEWEST.id }],
    waiting: [STRETCH_STATEMENTS.due, { ...state, state: 'waiting', walkQueue: 'even', ...FROM_THE_OLDEST }],
    running: [STRETCH_STATEMENTS.due, { ...state, state: 'running', walkQueue: 'even', ...FROM_THE_OLDEST }],
    scheduled: [
      STRETCH_STATEMENTS.delayed,
      { ...state, state: 'scheduled', walkQueue: 'odd', ...FROM_THE_OLDEST },
    ],
    retrying: [
      STRETCH_STATEMENTS.delayed,
      { ...state, state: 'retrying', walkQueue: 'odd', ...FROM_THE_OLDEST },
    ],
    dead: [STRETCH_STATEMENTS.exhausted, { ...state, state: 'dead', scan: 2_000, ...AT_THE_HEAD }],
    'running for the last time': [
      STRETCH_STATEMENTS.exhausted,
      { ...state, state: 'running', scan: 2_000, ...AT_THE_HEAD },
    ],
    overview: [overviewStatement, {}],
    queues: [liveQueuesStatement, { fromQueue: '' }],
    archived: [
      deadPageStatement,
      { ...NO_FILTER, queue: 'even', scan: 50, skip: 0, limit: 50, ...AT_THE_HEAD },
    ],
    'archived of a rare queue': [
      deadPageStatement,
      { ...NO_FILTER, queue: 'rare', scan: 50, skip: 0, limit: 50, ...AT_THE_HEAD },
    ],
    'archived by error': [
      deadPageStatement,
      { ...NO_FILTER, error: 'customer', scan: 2_000, skip: 0, limit: 50, ...AT_THE_HEAD },
    ],
    'archived on page 150': [
      deadPageStatement,
      { ...NO_FILTER, queue: 'even', scan: 9_600, skip: 7_550, limit: 50, ...AT_THE_HEAD },
    ],
    'number of archived': [deadCountStatement, { queue: 'even', type: null }],
    completed: [completedPageStatement, { type: 'rare', queue: null, beforeId: NEWEST.id, limit: 50 }],
    audit: [
      auditPageStatement,
      { actor: 'cli:bert', action: null, subject: null, beforeId: NEWEST.id, limit: 50 },
    ],
    'audit of a task': [
      auditPageStatement,
      { actor: null, action: null, subject: '1', beforeId: NEWEST.id, limit: 50 },
    ],
  };
  for (const statistics of ['none', 'fresh'] as const) {
    if (statistics === 'fresh') {
      for (const name of ['async_tasks', 'async_completed_tasks', 'async_audit'])
        await sql`analyze ${table(name)}`.execute(db);
    }
    for (const [name, [statement, values]] of Object.entries(cases)) {
      const plan = await planOf(db, statement, values);
      // Either reads more of the table the larger it is, which a hundred thousand rows do not show.
      expect([...plan.nodeTypes], name).not.toContain('Merge Join');
      expect([...plan.nodeTypes], name).not.toContain('Hash Join');
      const max = name === 'archived on page 150' ? BUFFERS_OF_DEEP_PAGE_MAX : BUFFERS_MAX;
      expect([name, statistics, plan.buffers < max, [...plan.scanned]], `${plan.buffers} pages`).toEqual([
        name,
        statistics,
        true,
        [],
      ]);
    }
  }
}, 180_000);

/** With the settings that the lists are read with. */
async function planOf(db: Kysely<DB>, statement: Statement<unknown>, values: Values): Promise<Plan> {
  return db.transaction().execute(async (transaction) => {
    for (const [name, value] of Object.entries(READ_SETTINGS)) {
      await sql`select set_config(${name}, ${value}, true)`.execute(transaction);
    }
    return explain(transaction, statement, values);
  });
}
