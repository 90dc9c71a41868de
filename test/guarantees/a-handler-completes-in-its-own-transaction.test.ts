import { sql } from 'kysely';
import { expect } from 'vitest';
import { TaskqError } from '../../src/index.ts';
import { gate, test } from '../support/replica.ts';
import { findRow, insertRow, lapseLease, wakeReplicas } from '../support/rows.ts';

test('the effect and the dequeue of a handler that completes commit together', async ({
  db,
  startReplica,
}) => {
  await sql`create table effects (id int)`.execute(db);
  const { events } = await startReplica({
    handlers: {
      plain: async (_payload, context) => {
        await db.transaction().execute(async (transaction) => {
          await sql`insert into effects values (1)`.execute(transaction);
          await context.complete(transaction);
          // Neither is there for anybody else before the commit.
          expect(await findRow(db, context.id)).toBeDefined();
        });
        expect(await findRow(db, context.id)).toBeUndefined();
      },
    },
  });
  const id = await insertRow(db, { type: 'plain' });
  await wakeReplicas(db);
  const { outcome, error } = await events.first('settled', ({ task }) => task.id === id);
  expect({ outcome, error }).toEqual({ outcome: 'success', error: undefined });
  expect((await sql`select * from effects`.execute(db)).rows).toHaveLength(1);
});

test('a refused fence rolls the work of a handler that completes back', async ({ db, startReplica }) => {
  await sql`create table effects (id int)`.execute(db);
  const [lateStarted, lateEnd, ownerStarted, ownerEnd] = [gate(), gate(), gate(), gate()];
  const codes: unknown[] = [];
  const { events } = await startReplica({
    handlers: {
      plain: async (_payload, context) => {
        if (context.attempt === 2) {
          ownerStarted.open();
          await ownerEnd.promise;
          return;
        }
        lateStarted.open();
        await lateEnd.promise;
        await db.transaction().execute(async (transaction) => {
          await sql`insert into effects values (1)`.execute(transaction);
          await context.complete(transaction).catch((error: unknown) => {
            codes.push(error instanceof TaskqError ? error.code : error);
            throw error;
          });
        });
      },
    },
  });
  const id = await insertRow(db, { type: 'plain' });
  await wakeReplicas(db);
  await lateStarted.promise;
  await lapseLease(db, id);
  await wakeReplicas(db);
  await ownerStarted.promise;

  lateEnd.open();
  const late = await events.first('settled', ({ task }) => task.attempt === 1);
  expect(late.outcome).toBe('lost');
  expect(codes).toEqual(['LEASE_LOST']);
  expect((await sql`select * from effects`.execute(db)).rows).toEqual([]);
  expect(await findRow(db, id)).toBeDefined();

  ownerEnd.open();
  const owner = await events.first('settled', ({ task }) => task.attempt === 2);
  expect(owner.outcome).toBe('success');
});

test('a completion that was rolled back leaves the task to its ordinary settlement', async ({
  db,
  startReplica,
}) => {
  const { events } = await startReplica({
    handlers: {
      plain: async (_payload, context) => {
        await db.transaction().execute(async (transaction) => {
          await context.complete(transaction);
          throw new Error('the work failed after all');
        });
      },
    },
  });
  const id = await insertRow(db, { type: 'plain' });
  await wakeReplicas(db);
  const { outcome, error } = await events.first('settled', ({ task }) => task.id === id);
  expect({ outcome, error }).toEqual({ outcome: 'failure', error: 'the work failed after all' });
  expect(await findRow(db, id)).toMatchObject({ attempt_count: 1, lease_token: null });
});
