import { sql } from 'kysely';
import { countDead } from '../../src/statements/dead-pages.ts';
import { type Answer, expect, type TestAdmin, test } from '../support/admin.ts';
import { readLaneOf } from '../support/rows.ts';
import { TEST_SCHEMA } from '../support/test.ts';

const table = (name: string) => sql.table(`${TEST_SCHEMA}.${name}`);

test('a size or number of a page that is none is refused', async ({ openAdmin }) => {
  const admin = await openAdmin();
  const sizes = [
    '0',
    '-1',
    '201',
    '1e9',
    '1.5',
    '1e3',
    '0x10',
    '',
    'abc',
    'NaN',
    'Infinity',
    '9007199254740992',
  ];
  for (const size of sizes) {
    expect((await admin.call(`GET /queues/default/archived?page_size=${size}`)).body).toMatchObject({
      status: 400,
      code: 'REQUEST_INVALID',
    });
  }
  for (const page of ['0', '-1', '1.5', '1e3', '', 'abc', '9007199254740992']) {
    expect((await admin.call(`GET /queues/default/archived?page=${page}`)).body).toMatchObject({
      status: 400,
      code: 'REQUEST_INVALID',
    });
  }
  for (const size of [1, 200]) {
    expect((await admin.call(`GET /queues/default/archived?page_size=${size}`)).body.pageSize).toBe(size);
  }
  const beyond = await admin.call('GET /queues/default/archived?page=999999999');
  expect(beyond.body).toMatchObject({ tasks: [], total: { count: 0, isAtLeast: false }, next: null });
});

test('a walk over all pages sees each row once, though rows die and go meanwhile and moments are alike', async ({
  db,
  openAdmin,
}) => {
  const admin = await openAdmin();
  // A thousand at one moment, to the microsecond, and a thousand a microsecond apart.
  await sql`insert into ${table('async_tasks')} (queue, task_type, payload, run_at, attempt_count, last_attempted_at)
    select 'low', case when n % 3 = 0 then 'plain' else 'brief' end, '{}',
      timestamptz '2026-03-01 12:00:00.000001+00' + greatest(n - 1000, 0) * interval '1 microsecond', 20,
      timestamptz '2026-03-01 12:00:00.000001+00' from generate_series(1, 2000) n`.execute(db);
  const stood = await db.selectFrom('async_tasks').select('id').execute();
  const gone = new Set(stood.filter((_, place) => place % 10 === 5).map(({ id }) => id));
  const churn = async (page: number) => {
    const [first] = [...gone].slice(page * 5, page * 5 + 1);
    for (const id of [...gone].slice(page * 5, page * 5 + 5))
      await db.deleteFrom('async_tasks').where('id', '=', id).execute();
    await sql`insert into ${table('async_tasks')} (queue, task_type, payload, run_at, attempt_count)
      values ('low', 'plain', '{}', now(), 20), ('low', 'plain', '{}', timestamptz '2026-03-01 12:00:00+00', 20)`.execute(
      db,
    );
    return first;
  };
  for (const path of [
    '/queues/low/archived?page_size=60',
    '/dead?queue=low&limit=60',
    '/tasks?state=dead&queue=low&limit=60',
  ]) {
    const seen = await walk(admin, path, churn);
    expect(new Set(seen).size).toBe(seen.length);
    const missed = stood.filter(({ id }) => !gone.has(id) && !seen.includes(id));
    expect([path, missed]).toEqual([path, []]);
  }
}, 120_000);

test('a total is exact to ten thousand, and then says that there are more', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  await sql`insert into ${table('async_tasks')} (queue, task_type, payload, run_at, attempt_count)
    select 'low', 'plain', '{}', now() - n * interval '1 second', 20 from generate_series(1, 10000) n`.execute(
    db,
  );
  expect(await countDead(readLaneOf(db), 'low')).toEqual({ count: 10_000, isAtLeast: false });
  const last = await admin.call('GET /queues/low/archived?page=200&page_size=50');
  expect([last.body.tasks.length, last.body.next]).toEqual([50, null]);
  await sql`insert into ${table('async_tasks')} (queue, task_type, payload, run_at, attempt_count)
    values ('low', 'plain', '{}', now() - interval '1 day', 20)`.execute(db);
  const { body } = await admin.call('GET /queues/low/archived?page=200&page_size=50');
  expect(body.total).toEqual({ count: 10_000, isAtLeast: true });
  const beyond = await admin.call('GET /queues/low/archived?page=201&page_size=50');
  expect([beyond.status, beyond.body.code]).toEqual([400, 'REQUEST_INVALID']);
  const byCursor = await admin.call(`GET /queues/low/archived?page_size=50&cursor=${body.next}`);
  expect([byCursor.body.tasks.length, byCursor.body.page, byCursor.body.next]).toEqual([1, null, null]);
}, 60_000);

test('a filter that matches rarely is walked to the end over short pages', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  await sql`insert into ${table('async_tasks')} (queue, task_type, payload, run_at)
    select 'low', case when n in (1, 25000) then 'rare' else 'plain' end, '{}', now() - (30000 - n) * interval '1 second'
    from generate_series(1, 30000) n`.execute(db);
  for (const path of [
    '/tasks?type=rare&limit=10',
    '/tasks?type=rare&state=waiting&limit=10',
    '/tasks?type=rare&queue=low&limit=10',
  ]) {
    const seen = await walk(admin, path, async () => undefined);
    expect([path, seen.length]).toEqual([path, 2]);
  }
}, 60_000);

async function walk(
  admin: TestAdmin,
  path: string,
  between: (page: number) => Promise<unknown>,
): Promise<string[]> {
  const seen: string[] = [];
  let cursor: string | null = null;
  for (let page = 0; page < 100; page += 1) {
    const answer: Answer = await admin.call(`GET ${path}${cursor === null ? '' : `&cursor=${cursor}`}`);
    expect(answer.status).toBe(200);
    seen.push(...answer.body.tasks.map(({ id }: { id: string }) => id));
    cursor = answer.body.next;
    if (cursor === null) return seen;
    await between(page);
  }
  throw new Error('the walk has no end');
}
