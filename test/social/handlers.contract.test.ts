import { sql } from 'kysely';
import {
  enqueue,
  type PayloadInput,
  type Tasks,
  type TaskType,
  tasks,
} from '../../generated/social/tasks.ts';
import type { HandlerRegistry } from '../../src/index.ts';
import { createHandlers } from '../../src/social/handlers/index.ts';
import { createServices, type Stores } from '../../src/social/services/wiring.ts';
import { type RunTaskOptions, runTask, type TaskRun } from '../../src/testing/index.ts';
import { CASES, type Case } from './support/cases.ts';
import { deadStores, storesThatFailHalfWay, watchedStores } from './support/faults.ts';
import { describe, expect, test, type World } from './support/social.ts';

const TYPES = Object.keys(tasks) as TaskType[];
const handlersOver = (stores: Stores) => createHandlers(createServices(stores));

/** Runs a task to its end, slice by slice, as one and the same task. */
async function run(
  handlers: HandlerRegistry<Tasks>,
  type: TaskType,
  payload: unknown,
  options: RunTaskOptions = {},
): Promise<TaskRun> {
  let ran: TaskRun | undefined;
  do {
    const given = { ...options, ...(ran?.cursor === undefined ? {} : { cursor: ran.cursor }) };
    ran = await runTask(handlers, type, payload as PayloadInput<typeof type>, given as never);
  } while (ran.result === 'continue');
  return ran;
}

/** Every row of the app, every object and every waiting task, moments of time only as such. */
async function stateOf(world: World): Promise<unknown> {
  const { rows: tables } = await sql<{ name: string }>`
    SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public' ORDER BY 1`.execute(world.db);
  const state: Record<string, unknown> = { keys: await world.keys() };
  for (const { name } of tables) {
    const { rows } = await sql<object>`SELECT * FROM ${sql.table(name)}`.execute(world.db);
    state[name] = rows
      .map((row) => JSON.stringify(row).replaceAll(/"\d{4}-\d\d-\d\dT[^"]+"/g, 'a moment'))
      .sort();
  }
  state['waiting'] = (await world.waiting()).map(({ type, payload }) => ({ type, payload }));
  return state;
}

function caseOf(type: TaskType): Case<TaskType> {
  return CASES[type] as Case<TaskType>;
}

/** Without Redis its sync does nothing, so that nothing can go wrong with it either. */
const isIdle = (type: TaskType, { redis }: World) => type === 'cron:redis_sync' && redis === undefined;

describe('every handler', () => {
  test.for(TYPES)(
    '%s: what no run could do the next one does, and one more changes nothing',
    async (type, { world }) => {
      const { payload, check } = await caseOf(type).arrange(world);
      const state = await stateOf(world);
      if (!isIdle(type, world)) {
        expect(await run(handlersOver(await deadStores(world)), type, payload)).toMatchObject(FAILED);
        expect(await stateOf(world)).toEqual(state);
        for (const interruptedBy of ['deadline', 'shutdown'] as const) {
          await interruptHalfWay(world, type, payload, interruptedBy);
        }
        await loseConnectionHalfWay(world, type, payload);
      }
      expect(await run(world.handlers, type, payload)).toMatchObject({ outcome: 'success' });
      await check();
      const done = await stateOf(world);
      expect(await run(world.handlers, type, payload)).toMatchObject({ outcome: 'success' });
      expect(await stateOf(world)).toEqual(done);
    },
  );

  test.for(TYPES)(
    '%s: takes no payload that is none, and is done when what it is about is gone',
    async (type, { world }) => {
      const { arrange, gone, refused } = caseOf(type);
      for (const payload of refused) {
        const enqueued = enqueue(world.db, type, payload as PayloadInput<typeof type>);
        await expect(enqueued, JSON.stringify(payload)).rejects.toMatchObject({ code: 'PAYLOAD_INVALID' });
      }
      expect(await world.waiting()).toEqual([]);
      if (gone === undefined) return;
      await arrange(world);
      const state = await stateOf(world);
      expect(await run(world.handlers, type, gone)).toMatchObject({ outcome: 'success' });
      expect(await stateOf(world)).toEqual(state);
    },
  );
});

/** To be tried again, and no dead letter yet. */
const FAILED = { outcome: 'failure', dead: false, settlement: { kind: 'record_failure' } };

/** Interrupts a run when a store has given its first answer. */
async function interruptHalfWay(
  world: World,
  type: TaskType,
  payload: unknown,
  interruptedBy: 'deadline' | 'shutdown',
): Promise<void> {
  // A single request is all there is of a delete: behind it there is no half of it left.
  if (type === 'cleanup:s3_delete') return;
  const interruption = new AbortController();
  const interrupt = () => interruption.abort();
  const stores = watchedStores(world, { afterStatement: interrupt, afterObject: interrupt });
  const { signal } = interruption;
  const { outcome, dead } = await run(handlersOver(stores), type, payload, { signal, interruptedBy });
  expect(outcome).toBe(interruptedBy === 'deadline' ? 'timeout' : 'cancelled');
  expect(dead).toBe(false);
}

async function loseConnectionHalfWay(world: World, type: TaskType, payload: unknown): Promise<void> {
  if (type === 'cleanup:s3_delete') return;
  expect(await run(handlersOver(storesThatFailHalfWay(world)), type, payload)).toMatchObject(FAILED);
}
