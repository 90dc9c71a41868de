import type { Kysely, Transaction } from 'kysely';
import { expectTypeOf, test } from 'vitest';
import type { HandlerRegistry } from '../../src/index.ts';
import {
  drain,
  type EnqueuedTask,
  expectEnqueued,
  runTask,
  type SettledRun,
} from '../../src/testing/index.ts';
import { type TestTasks, testTasks } from '../support/tasks.ts';

declare const handlers: HandlerRegistry<TestTasks>;
declare const anyHandlers: HandlerRegistry;
declare const db: Kysely<{ stacks: { id: string } }>;
declare const tx: Transaction<{ stacks: { id: string } }>;

test('runTask takes the payload and the cursor of its task type, and answers its cursor', async () => {
  const run = await runTask(handlers, 'sliced', { pages: 1 }, { cursor: { page: 1 } });
  expectTypeOf(run.cursor).toEqualTypeOf<{ page: number } | undefined>();
  expectTypeOf(run.result).toEqualTypeOf<'done' | 'continue' | 'error'>();
  if (run.result === 'error') expectTypeOf(run.error).toBeUnknown();
  else expectTypeOf(run.error).toBeUndefined();
  // @ts-expect-error no such task type
  void runTask(handlers, 'slice', { pages: 1 });
  // @ts-expect-error another type's payload
  void runTask(handlers, 'sliced', { n: 1 });
  // @ts-expect-error not its cursor
  void runTask(handlers, 'sliced', { pages: 1 }, { cursor: 1 });
  // @ts-expect-error it has no cursor
  void runTask(handlers, 'plain', {}, { cursor: { page: 1 } });
});

test('a registry whose task types are not known takes any type, payload and cursor', async () => {
  const run = await runTask(anyHandlers, 'whatever', { n: 'x' }, { cursor: 1 });
  expectTypeOf(run.cursor).toBeUnknown();
  expectTypeOf(handlers).toExtend<HandlerRegistry>();
});

test('expectEnqueued types the payload by the definition, not by the name', () => {
  const { definition } = testTasks.sliced;
  expectTypeOf(expectEnqueued(tx, definition, { pages: 1 }, 1)).toEqualTypeOf<Promise<EnqueuedTask[]>>();
  void expectEnqueued(tx, definition, ({ pages }) => pages > 1);
  void expectEnqueued(tx, 'sliced', { whatever: 1 });
  // @ts-expect-error not its payload
  void expectEnqueued(tx, definition, { page: 1 });
});

test('drain takes a Kysely, a transaction or connection settings: one of them', () => {
  expectTypeOf(drain({ db, handlers })).toEqualTypeOf<Promise<SettledRun[]>>();
  void drain({ db: tx, handlers });
  void drain({ database: 'postgres:///test', handlers });
  // @ts-expect-error neither
  void drain({ handlers });
  // @ts-expect-error both
  void drain({ handlers, db, database: 'postgres:///test' });
});
