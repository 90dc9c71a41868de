import type { Kysely } from 'kysely';
import { z } from 'zod';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../../src/domain/ids.ts';
import type { Observer } from '../../src/domain/observer.ts';
import {
  createRegistry,
  type Duration,
  defineTask,
  type Handler,
  type HandlerRegistry,
} from '../../src/index.ts';
import { readClocks } from '../../src/processor/deadline.ts';
import { type KeepAlive, keepAlive, leaseMsOf } from '../../src/processor/heartbeats.ts';
import { HeldTask } from '../../src/processor/held-task.ts';
import { claim } from '../../src/statements/claim.ts';
import type { WriteLane } from '../../src/statements/lanes.ts';
import type { ManualClock } from './clock.ts';
import { writeLaneOf } from './rows.ts';

/** A task type whose lease is kept alive by heartbeats; sliced, for the cursor that gives the row back. */
export const definePulsed = (heartbeat: Duration = '15s', ceiling: Duration = '5m') =>
  defineTask({
    type: 'pulsed',
    payload: z.object({}),
    cursor: z.object({ page: z.number().int() }),
    ceiling,
    heartbeat,
  });

export type Pulsed = ReturnType<typeof definePulsed>;

/** The interval, the ceiling and the default margin of the type that tests with a manual clock use. */
export const BEAT_MS = 15_000;
export const CEILING_MS = 300_000;
export const MARGIN_MS = 30_000;

export function pulsedRegistry(handler: Handler<Pulsed>, definition = definePulsed()): HandlerRegistry {
  return createRegistry({ pulsed: { definition, revision: 1 } }, { pulsed: handler });
}

/** A claimed row and the beats of its run, with no replica around them. */
export async function startBeats(
  db: Kysely<DB>,
  id: TaskId,
  clock: ManualClock,
  { write = writeLaneOf(db), observe = () => {} }: { write?: WriteLane; observe?: Observer } = {},
): Promise<{ held: HeldTask; beats: KeepAlive; lost: string[] }> {
  const definition = definePulsed();
  const leaseMs = { pulsed: leaseMsOf(definition, MARGIN_MS) };
  const sentAt = readClocks(clock);
  const [task] = await claim(writeLaneOf(db), {
    ids: [id],
    known: { pulsed: 1 },
    leaseMs,
    marginMs: MARGIN_MS,
    slots: 1,
  });
  if (task === undefined) throw new Error(`task ${id} was not claimable`);
  const held = new HeldTask(task, sentAt);
  const lost: string[] = [];
  const deps = { write, clock, timers: clock, marginMs: MARGIN_MS, observe };
  return { held, beats: keepAlive(held, definition, deps, (message) => lost.push(message)), lost };
}
