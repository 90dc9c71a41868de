import type { Handler } from '../../src/index.ts';
import { gate, test } from '../support/replica.ts';
import { allRows, lapseLease, rowOf } from '../support/rows.ts';
import { enqueue, type TestTasks } from '../support/tasks.ts';
import { expect } from '../support/test.ts';

// Hazard 9: a holder whose lease has lapsed still writes its outcome over that of the new holder.

type Sliced = Handler<TestTasks['sliced']['definition']>;
type Context = Parameters<Sliced>[1];

const CASES: readonly {
  readonly how: string;
  readonly ends: (context: Context) => Promise<'done' | 'continue'>;
  readonly outcome: string;
}[] = [
  { how: 'returns done', outcome: 'lost', ends: async () => 'done' },
  {
    how: 'throws',
    outcome: 'lost',
    ends: async () => {
      throw new Error('of the late holder');
    },
  },
  {
    how: 'advances its cursor and lets the refusal propagate',
    outcome: 'lost',
    ends: async ({ advanceCursor }) => {
      await advanceCursor({ page: 99 });
      return 'continue';
    },
  },
  {
    how: 'advances its cursor, swallows the refusal and says continue',
    // The slice it did is lost, whatever it says: nothing goes on from there.
    outcome: 'lost',
    ends: async ({ advanceCursor }) => {
      await expect(advanceCursor({ page: 99 })).rejects.toMatchObject({ code: 'LEASE_LOST' });
      return 'continue';
    },
  },
  {
    how: 'is released by a shutdown',
    // A release that is refused loses nothing: the row was given back by the lapse.
    outcome: 'cancelled',
    ends: async ({ signal }) => {
      signal.throwIfAborted();
      return 'done';
    },
  },
];

for (const { how, ends, outcome } of CASES) {
  test(`a late holder that ${how} changes nothing while the new one runs`, async ({ db, startReplica }) => {
    const lateMayEnd = gate();
    const late = await startReplica({
      slots: 1,
      handlers: {
        sliced: async (_payload, context) => {
          await Promise.race([
            lateMayEnd.promise,
            new Promise((go) => context.signal.addEventListener('abort', go)),
          ]);
          return ends(context);
        },
      },
    });
    const { id } = await enqueue(db, 'sliced', { pages: 3 });
    await late.events.first('claimed');
    await lapseLease(db, id);

    const newMayEnd = gate();
    const next = await startReplica({ slots: 1, handlers: { sliced: () => newMayEnd.promise } });
    await next.events.first('claimed', ({ task }) => task.id === id);
    const held = await rowOf(db, id);

    if (how === 'is released by a shutdown') await late.app.stop();
    else lateMayEnd.open();
    expect(await late.events.first('settled')).toMatchObject({ task: { id }, outcome, dead: false });
    expect(await rowOf(db, id)).toEqual(held);
    expect(held).toMatchObject({ attempt_count: 2, last_error: null, cursor: null });

    newMayEnd.open();
    expect(await next.events.first('settled')).toMatchObject({ task: { id }, outcome: 'success' });
    expect(await allRows(db)).toEqual([]);
  });
}
