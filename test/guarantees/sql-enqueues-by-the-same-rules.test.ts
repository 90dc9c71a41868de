import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { migrateUp } from '../../src/statements/migrate.ts';
import { wakeChannel } from '../../src/statements/wake-channel.ts';
import { session } from '../support/migrate-process.ts';
import { allRows, claimRow, rowOf } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { expect, test } from '../support/test.ts';
import { hearWakes } from '../support/wakes.ts';

test('the function enqueues what the client enqueues, column for column', async ({ database, db }) => {
  await using client = await session(database.connection);
  const headers = { traceparent: '00-ab-cd-01' };
  const fromClient = await enqueue(db, 'plain', { n: 7 }, { queue: 'low', maxAttempts: 3, headers });
  const { rows } = await client.query(
    `select * from taskq.enqueue('plain', '{"n": 7}', queue => 'low', max_attempts => 3, headers => $1)`,
    [headers],
  );

  expect(rows).toEqual([{ id: expect.any(String), status: 'enqueued' }]);
  const same = { id: expect.any(Number), run_at: expect.any(String), created_at: expect.any(String) };
  expect(await rowOf(db, rows[0].id)).toEqual({ ...(await rowOf(db, fromClient.id)), ...same });
  expect(await claimRow(db, rows[0].id)).toMatchObject({ payloadText: '{"n": 7}', headers });
});

test('what is not given is what the client gives', async ({ database, db }) => {
  await using client = await session(database.connection);
  const fromClient = await enqueue(db, 'plain', { n: 7 });
  const { rows } = await client.query(`select id from taskq.enqueue('plain', '{"n": 7}')`);

  const same = { id: expect.any(Number), run_at: expect.any(String), created_at: expect.any(String) };
  expect(await rowOf(db, rows[0].id)).toEqual({ ...(await rowOf(db, fromClient.id)), ...same });
});

test('a delay counts from the call, and a moment is taken as it is', async ({ database, db }) => {
  await using client = await session(database.connection);
  await client.query(`select taskq.enqueue('plain', '{}', delay => '1 hour')`);
  await client.query(`select taskq.enqueue('plain', '{}', run_at => '2099-01-31T09:00:00Z')`);

  const [delayed, timed] = await allRows(db);
  const hours =
    (Date.parse(String(delayed?.['run_at'])) - Date.parse(String(delayed?.['created_at']))) / 3_600_000;
  expect(hours).toBeCloseTo(1, 3);
  expect(new Date(String(timed?.['run_at'])).toISOString()).toBe('2099-01-31T09:00:00.000Z');
});

test('a trigger enqueues in the transaction of the change: with it, or not at all, and one wake', async ({
  database,
  db,
}) => {
  await using client = await session(database.connection);
  await client.query(`
    create table public.stacks (id int primary key, name text);
    create function public.reconcile() returns trigger language plpgsql as $$ begin
      perform taskq.enqueue('plain', jsonb_build_object('n', new.id), unique_key => new.id::text, unique_while => 'waiting');
      return new;
    end $$;
    create trigger reconcile after insert or update on public.stacks for each row execute function public.reconcile()`);
  const wakes = await hearWakes(database);

  await client.query(`begin; insert into public.stacks values (1, 'a'); rollback`);
  expect([await allRows(db), await wakes.count()]).toEqual([[], 0]);
  await client.query(`insert into public.stacks values (1, 'a'), (2, 'b')`);
  await client.query(`update public.stacks set name = 'c'`);

  expect(await allRows(db)).toMatchObject([{ payload: { n: 1 } }, { payload: { n: 2 } }]);
  // One for the inserts, and one for the updates: they have kept workers from the rows until they committed.
  expect(await wakes.count()).toBe(2);
});

test('the key of payload fields is the same from SQL and from the client', async ({ database, db }) => {
  await using client = await session(database.connection);
  const payload = { pages: 9_007_199_254_740_991, owner: { id: 'ä"1', at: 0.000_000_1, far: 1e21 } };
  for (const [by, key] of [
    [['pages'], `jsonb_build_object('pages', p -> 'pages')`],
    [['owner.id'], `jsonb_build_object('owner.id', p #> '{owner,id}')`],
    [
      ['owner.at', 'owner.far'],
      `jsonb_build_object('owner.far', p #> '{owner,far}', 'owner.at', p #> '{owner,at}')`,
    ],
    [undefined, 'p'],
  ] as const) {
    const unique = { while: 'live', ...(by === undefined ? {} : { by }) } as never;
    const { id } = await enqueue(db, 'sliced', payload, { unique });
    const { rows } = await client.query(
      `select e.* from (values ($1::jsonb)) given(p),
         taskq.enqueue('sliced', p, unique_key => (${key})::text, unique_while => 'live') e`,
      [JSON.stringify(payload)],
    );
    expect(rows, String(by)).toEqual([{ id, status: 'existing' }]);
  }
});

test('a task in the way is raised as TQ001 with its id, and a window and a replacement are those of the client', async ({
  database,
  db,
}) => {
  await using client = await session(database.connection);
  const call = (rest: string) =>
    client.query(`select * from taskq.enqueue('plain', '{"n": 2}', unique_key => 'k', ${rest})`);
  const { id } = await enqueue(db, 'plain', { n: 1 }, { unique: { key: 'k', while: { window: '1h' } } });

  await expect(call(`unique_while => 'live', on_conflict => 'error'`)).rejects.toMatchObject({
    code: 'TQ001',
    detail: id,
    message: `enqueue: task ${id} stands in the way of another plain with its key`,
  });
  const inWindow = await call(`unique_while => 'window', unique_window => '1 minute'`);
  expect(inWindow.rows).toEqual([{ id, status: 'existing' }]);
  const replacing = await call(`unique_while => 'waiting', on_conflict => 'replace'`);
  expect(replacing.rows).toEqual([{ id, status: 'replaced' }]);
  expect(await rowOf(db, id)).toMatchObject({ payload: { n: 2 } });
});

const BAD_ARGUMENTS = {
  [`null, '{}'`]: 'task_type: expected a name',
  [`' ', '{}'`]: 'task_type: expected a name',
  [`repeat('a', 201), '{}'`]: 'task_type: longer than 200 characters',
  [`E'a\\nb', '{}'`]: 'task_type: control characters and line breaks are not allowed',
  [`U&'a\\2028b', '{}'`]: 'task_type: control characters and line breaks are not allowed',
  [`'plain', null`]: "payload: expected JSON; SQL's null is none, JSON's null is",
  [`'plain', '{}', queue => ''`]: 'queue: expected a name',
  [`'plain', '{}', queue => repeat('a', 201)`]: 'queue: longer than 200 characters',
  [`'plain', '{}', queue => E'a\\tb'`]: 'queue: control characters and line breaks are not allowed',
  [`'plain', '{}', run_at => now(), delay => '1s'`]: 'run_at and delay: give one of them, not both',
  [`'plain', '{}', run_at => 'infinity'`]: 'run_at: expected a moment after 1970',
  [`'plain', '{}', run_at => '1969-12-31'`]: 'run_at: expected a moment after 1970',
  [`'plain', '{}', delay => '-1s'`]: 'delay: expected a length of time from 0 to a century',
  [`'plain', '{}', delay => '102 years'`]: 'delay: expected a length of time from 0 to a century',
  [`'plain', '{}', max_attempts => 0`]: 'max_attempts: expected a number from 1 to 1000',
  [`'plain', '{}', max_attempts => 1001`]: 'max_attempts: expected a number from 1 to 1000',
  [`'plain', '{}', payload_revision => 0`]: 'payload_revision: expected a number from 1 on',
  [`'plain', '{}', payload_revision => null`]: 'payload_revision: expected a number from 1 on',
  [`'plain', '{}', headers => null`]: 'headers: expected an object of strings',
  [`'plain', '{}', headers => '["a"]'`]: 'headers: expected an object of strings',
  [`'plain', '{}', headers => '{"a": 1}'`]: 'headers: expected an object of strings',
  [`'plain', '{}', headers => '{"a": ["b"]}'`]: 'headers: expected an object of strings',
  [`'plain', '{}', unique_while => 'live'`]: 'unique_while and unique_window: give a unique_key too',
  [`'plain', '{}', unique_window => '1h'`]: 'unique_while and unique_window: give a unique_key too',
  [`'plain', '{}', on_conflict => 'error'`]: 'on_conflict: give a unique_key too',
  [`'plain', '{}', unique_key => 'k'`]: 'unique_while: say what stands in the way: live, waiting or window',
  [`'plain', '{}', unique_key => 'k', unique_while => 'running'`]:
    'unique_while: say what stands in the way: live, waiting or window',
  [`'plain', '{}', unique_key => 'k', unique_while => 'live', on_conflict => 'ignore'`]:
    'on_conflict: expected skip, replace or error',
  [`'plain', '{}', unique_key => 'k', unique_while => 'live', on_conflict => null`]:
    'on_conflict: expected skip, replace or error',
  [`'plain', '{}', unique_key => 'k', unique_while => 'window'`]:
    'unique_window: give it with unique_while window, and only then',
  [`'plain', '{}', timeout => '999 milliseconds'`]:
    'timeout: expected a length of time from 1 second to a century',
  [`'plain', '{}', timeout => '-1 hour'`]: 'timeout: expected a length of time from 1 second to a century',
  [`'plain', '{}', timeout => '1 day -25 hours'`]:
    'timeout: expected a length of time from 1 second to a century',
  [`'plain', '{}', timeout => '102 years'`]: 'timeout: expected a length of time from 1 second to a century',
  [`'plain', '{}', retention => '0'`]: 'retention: expected a length of time from 1 second to a century',
  [`'plain', '{}', retention => '-1 month'`]:
    'retention: expected a length of time from 1 second to a century',
  [`'plain', '{}', retention => '1300 months'`]:
    'retention: expected a length of time from 1 second to a century',
  [`'plain', '{}', wake => 'never'`]: 'wake: expected notify or poll',
  [`'plain', '{}', wake => null`]: 'wake: expected notify or poll',
  [`'plain', '{}', unique_key => 'k', unique_while => 'live', unique_window => '1h'`]:
    'unique_window: give it with unique_while window, and only then',
  [`'plain', '{}', unique_key => 'k', unique_while => 'window', unique_window => '0'`]:
    'unique_window: expected a length of time above 0, up to a century',
};

test('arguments that do not fit are refused with 22023 and a sentence, and nothing is written', async ({
  database,
  db,
}) => {
  await using client = await session(database.connection);
  const refusals: Record<string, string> = {};
  for (const given of Object.keys(BAD_ARGUMENTS)) {
    refusals[given] = await client.query(`select taskq.enqueue(${given})`).then(
      () => 'accepted',
      ({ code, message }) => `${code} ${message}`,
    );
  }
  const expected = Object.entries(BAD_ARGUMENTS).map(([given, problem]) => [
    given,
    `22023 enqueue: ${problem}`,
  ]);
  expect(refusals).toEqual(Object.fromEntries(expected));
  expect(await allRows(db)).toEqual([]);
});

test('a length of time without an end is none, where PostgreSQL has such', async ({ database, db }) => {
  await using client = await session(database.connection);
  const { rows } = await client.query(`select current_setting('server_version_num')::int >= 170000 as has`);
  for (const argument of ['timeout', 'retention']) {
    await expect(
      client.query(`select taskq.enqueue('plain', '{}', ${argument} => 'infinity')`),
    ).rejects.toMatchObject(
      rows[0].has
        ? {
            code: '22023',
            message: `enqueue: ${argument}: expected a length of time from 1 second to a century`,
          }
        : { code: '22007' },
    );
  }
  expect(await allRows(db)).toEqual([]);
});

test('a timeout and a retention are those of the client, in whole milliseconds; a month is 30 days', async ({
  database,
  db,
}) => {
  await using client = await session(database.connection);
  await enqueue(db, 'plain', {}, { timeout: '90s', retention: '36h' });
  for (const given of [
    `timeout => '1 minute 30 seconds', retention => '1 day 12 hours'`,
    `timeout => '1.0000001 seconds', retention => '1 month'`,
    `timeout => '1.0001 seconds', retention => '1 year'`,
    `timeout => null, retention => null`,
  ]) {
    await client.query(`select taskq.enqueue('plain', '{}', ${given})`);
  }
  const day = 86_400_000;
  expect((await allRows(db)).map((row) => [row['ceiling_ms'], row['retention_ms']])).toEqual([
    [90_000, 1.5 * day],
    [90_000, 1.5 * day],
    // PostgreSQL counts microseconds, the columns milliseconds.
    [1_000, 30 * day],
    [1_001, 365.25 * day],
    [null, null],
  ]);
});

test('a replacement from SQL sets the timeout and the retention with the payload', async ({
  database,
  db,
}) => {
  await using client = await session(database.connection);
  const call = async (given: string) => {
    await client.query(
      `select taskq.enqueue('plain', '{}', unique_key => 'k', unique_while => 'live', on_conflict => 'replace', ${given})`,
    );
    return (await allRows(db)).map((row) => [row['ceiling_ms'], row['retention_ms']]);
  };
  expect(await call(`timeout => '10s', retention => '1h'`)).toEqual([[10_000, 3_600_000]]);
  expect(await call(`timeout => '20s'`)).toEqual([[20_000, null]]);
});

const SCHEMAS = [
  'queue_2',
  'Tasks',
  'wer "das" liest; --',
  'größe',
  'a'.repeat(44),
  'a'.repeat(45),
  '$function$',
];

test('it works in a schema of any name, whatever the search_path, and wakes the workers of that schema', async ({
  database,
}) => {
  for (const schema of SCHEMAS) {
    await migrateUp(database.connection, { schema });
    await using client = await session(database.connection);
    const heard: string[] = [];
    client.on('notification', ({ channel }) => heard.push(channel));
    await client.query(`listen ${pg.escapeIdentifier(wakeChannel(schema))}`);
    const table = `${pg.escapeIdentifier(schema)}.async_tasks`;
    // What stands in for the queue's tables, by an intruder or by chance.
    await client.query('set search_path = pg_temp, public; create temporary table async_tasks (id int)');

    await client.query(`select ${pg.escapeIdentifier(schema)}.enqueue('plain', '{}')`);

    const { rows } = await client.query(`select task_type from ${table}`);
    expect(rows, schema).toEqual([{ task_type: 'plain' }]);
    expect(heard, schema).toEqual([wakeChannel(schema)]);
  }
});

test('a role with nothing but USAGE and EXECUTE enqueues; PUBLIC may not', async ({ database, db }) => {
  await using owner = await session(database.connection);
  const role = `taskq_test_enqueuer_${randomBytes(4).toString('hex')}`;
  await owner.query(`create role ${role} nologin; grant usage on schema taskq to ${role}`);
  try {
    await using client = await session({ ...database.connection, options: `-c role=${role}` });
    await expect(client.query(`select taskq.enqueue('plain', '{}')`)).rejects.toMatchObject({
      code: '42501',
    });

    await owner.query(`grant execute on function taskq.enqueue to ${role}`);

    const unique = `unique_key => 'k', unique_while => 'waiting'`;
    for (const status of ['enqueued', 'existing']) {
      const { rows } = await client.query(`select status from taskq.enqueue('plain', '{}', ${unique})`);
      expect(rows).toEqual([{ status }]);
    }
    for (const table of ['async_tasks', 'async_task_keys']) {
      await expect(client.query(`table taskq.${table}`)).rejects.toMatchObject({ code: '42501' });
    }
  } finally {
    await owner.query(`drop owned by ${role} cascade; drop role ${role}`);
  }
  expect(await allRows(db)).toHaveLength(1);
});
