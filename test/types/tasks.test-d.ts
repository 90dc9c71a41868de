import type { Kysely, Transaction } from 'kysely';
import { expectTypeOf, test } from 'vitest';
import {
  defineHandlers,
  enqueue,
  enqueueExplorePurge,
  enqueueMany,
  type Handlers,
  type PayloadInput,
  type PayloadOutput,
  type Tasks,
  type TaskType,
  tasks,
} from '../../generated/tasks.ts';
import type { Enqueued, HandlerContext, HandlerRegistry, PayloadPath } from '../../src/index.ts';

interface AppTables {
  stacks: { id: string };
}
declare const tx: Transaction<AppTables>;
declare const db: Kysely<AppTables>;
declare const handlers: Handlers;

const payload = { stackId: '3c1f0f3e-5a52-4d53-9d0c-1c9cbb3f3c4e' };

test('an enqueue takes the type, its payload and known options, in a transaction over any tables', () => {
  expectTypeOf(enqueue(tx, 'explore_purge', payload)).toEqualTypeOf<Promise<Enqueued>>();
  expectTypeOf(enqueueExplorePurge(db, payload, { delay: '5m' })).toEqualTypeOf<Promise<Enqueued>>();
  expectTypeOf(enqueueMany(tx, 'explore_purge', [payload])).toEqualTypeOf<Promise<Enqueued[]>>();
  void enqueue(tx, 'explore_purge', payload, { unique: { by: ['stackId'], while: { window: '1h' } } });
  void enqueueExplorePurge(tx, payload, { unique: false });
});

test('a wrong enqueue does not compile', () => {
  // @ts-expect-error no such task type
  void enqueue(tx, 'explore_purg', payload);
  // @ts-expect-error a property is missing
  void enqueue(tx, 'explore_purge', {});
  // @ts-expect-error a property is of another type
  void enqueue(tx, 'explore_purge', { stackId: 1 });
  // @ts-expect-error a property too many
  void enqueue(tx, 'explore_purge', { ...payload, stack: 1 });
  // @ts-expect-error no such option
  void enqueue(tx, 'explore_purge', payload, { dealy: '5m' });
  // @ts-expect-error no duration
  void enqueueExplorePurge(tx, payload, { delay: 'soon' });
  // @ts-expect-error a payload, not a list of them
  void enqueueMany(tx, 'explore_purge', payload);
  // @ts-expect-error no such field
  void enqueue(tx, 'explore_purge', payload, { unique: { by: ['stakId'], while: 'live' } });
  // @ts-expect-error what stands in the way is not said
  void enqueue(tx, 'explore_purge', payload, { unique: { by: ['stackId'] } });
  // @ts-expect-error no such mode
  void enqueueMany(tx, 'explore_purge', [payload], { unique: { while: 'running' } });
  // @ts-expect-error no transaction
  void enqueueExplorePurge({}, payload);
});

test('the handlers are exactly those of the task types', () => {
  expectTypeOf(defineHandlers(handlers)).toEqualTypeOf<HandlerRegistry<Tasks>>();
  expectTypeOf<keyof Handlers>().toEqualTypeOf<TaskType>();
  // @ts-expect-error a handler is missing
  defineHandlers({});
  const { explore_purge: _, ...missing } = handlers;
  // @ts-expect-error one handler is missing
  defineHandlers(missing);
  // @ts-expect-error a handler for no type
  defineHandlers({ ...handlers, explore_purg: () => {} });
  // @ts-expect-error no answer that a handler may give
  defineHandlers({ ...handlers, explore_purge: () => 'later' });
  defineHandlers({
    ...handlers,
    explore_purge: async (given, context) => {
      expectTypeOf(given).toEqualTypeOf<{ stackId: string }>();
      expectTypeOf(context).toEqualTypeOf<HandlerContext>();
    },
  });
});

test('the types of a payload are those of its schema, in and out', () => {
  expectTypeOf<PayloadInput<'explore_purge'>>().toEqualTypeOf<{ stackId: string }>();
  expectTypeOf<PayloadOutput<'explore_purge'>>().toEqualTypeOf<{ stackId: string }>();
  expectTypeOf(tasks.explore_purge.definition.type).toEqualTypeOf<'explore_purge'>();
});

test('the fields that a key may be made of are those of the payload, whatever its shape', () => {
  interface Deep {
    id: string;
    owner?: { id: number; since: Date; tags: string[] };
    shape: { kind: 'a'; a: { x: 1 } } | { kind: 'b'; b: null };
  }
  expectTypeOf<PayloadPath<Deep>>().toEqualTypeOf<
    | 'id'
    | 'owner'
    | 'owner.id'
    | 'owner.since'
    | 'owner.tags'
    | 'shape'
    | 'shape.kind'
    | 'shape.a'
    | 'shape.a.x'
    | 'shape.b'
  >();
  expectTypeOf<PayloadPath<Record<string, unknown>>>().toEqualTypeOf<string>();
  expectTypeOf<PayloadPath<unknown>>().toEqualTypeOf<string>();
  expectTypeOf<PayloadPath<string[]>>().toEqualTypeOf<never>();
});
