import { sql } from 'kysely';
import { z } from 'zod';
import { createEnqueuer, createRegistry, defineTask } from '../../src/index.ts';
import { listDead } from '../../src/statements/dead.ts';
import { test } from '../support/replica.ts';
import { backoffOf, insertRow, readLaneOf, rowOf } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { expect } from '../support/test.ts';

// Hazard 22: NUL or broken Unicode in the error text: the failure is refused and the task stays leased.

const BROKEN: readonly (readonly [what: string, text: string])[] = [
  ['NUL', 'be\u0000fore'],
  ['a lone high surrogate', 'be\ud83dfore'],
  ['a lone low surrogate', 'be\ude00fore'],
  ['a character cut in the middle', `be${Buffer.from('😀').subarray(0, 2).toString('utf16le')}\ud800fore`],
];

const PLACES = {
  message: (text: string) => new Error(text),
  stack: (text: string) => Object.assign(new Error('of the stack'), { stack: `Error: x\n at ${text}` }),
  name: (text: string) => Object.assign(new Error(''), { name: text }),
  cause: (text: string) => new Error('of the cause', { cause: new Error(text) }),
};

const CASES = Object.entries(PLACES).flatMap(([place, make]) =>
  BROKEN.map(([what, text]) => ({ title: `${what} in the ${place}`, error: make(text) })),
);

test('a failure whose text PostgreSQL would refuse is recorded, the bad characters replaced', async ({
  db,
  startReplica,
}) => {
  const definition = defineTask({ type: 'broken', payload: z.object({ which: z.number() }), ceiling: '1m' });
  const tasks = { broken: { definition, revision: 1 } };
  const { events } = await startReplica({
    registry: createRegistry(tasks, {
      broken: ({ which }) => {
        throw CASES[which]?.error;
      },
    }),
  });

  const ids = await createEnqueuer(tasks).enqueueMany(
    db,
    'broken',
    CASES.map((_, which) => ({ which })),
  );
  await events.atLeast(CASES.length, 'settled');

  for (const [which, { id }] of ids.entries()) {
    const title = CASES[which]?.title;
    const row = await rowOf(db, id);
    expect(row, title).toMatchObject({ attempt_count: 1, lease_token: null });
    expect(await backoffOf(db, id), title).toBe(15_000);
    const stored = JSON.stringify(row.errors) + row.last_error;
    expect(stored, title).toContain('\ufffd');
    expect(stored.isWellFormed() && !stored.includes('\u0000'), title).toBe(true);
  }
  expect(events.of('settlement_retried')).toEqual([]);
});

test('on the final attempt such a failure is a dead letter that is listed as valid JSON', async ({
  db,
  startReplica,
}) => {
  const id = await insertRow(db, { attemptCount: 19 });
  const { events } = await startReplica({
    handlers: {
      plain: () => {
        throw new Error('last \u0000 word');
      },
    },
  });

  expect(await events.first('settled')).toMatchObject({
    task: { id, attempt: 20 },
    outcome: 'failure',
    dead: true,
  });
  const listed = JSON.parse(JSON.stringify(await listDead(readLaneOf(db), { limit: 10 })));
  expect(listed).toMatchObject([{ id, attemptCount: 20, lastError: 'last \ufffd word' }]);
});

test('a failure that the server refuses nevertheless is recorded with a plain text instead', async ({
  db,
  startReplica,
}) => {
  await sql`create function refuse() returns trigger language plpgsql as $$ begin
    raise exception 'invalid byte sequence' using errcode = '22021'; end $$`.execute(db);
  await sql`create trigger refuse before update on taskq.async_tasks for each row
    when (new.last_error like '%unspeakable%') execute function refuse()`.execute(db);
  const { events } = await startReplica({
    handlers: {
      plain: () => {
        throw new Error('unspeakable');
      },
    },
  });

  const { id } = await enqueue(db, 'plain', {});

  expect(await events.first('settled')).toMatchObject({
    task: { id },
    outcome: 'failure',
    error: 'unspeakable',
  });
  const row = await rowOf(db, id);
  expect(row).toMatchObject({
    attempt_count: 1,
    lease_token: null,
    last_error: 'the error could not be stored as text; the log has it',
  });
  expect(await backoffOf(db, id)).toBe(15_000);
  expect(events.of('settlement_retried')).toEqual([]);
});
