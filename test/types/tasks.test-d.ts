import type { Kysely, Transaction } from 'kysely';
import { expectTypeOf, test } from 'vitest';
import {
  defineHandlers,
  enqueue,
  enqueueExplorePurge,
  enqueueMany,
  type Handlers,
  makeEnqueue,
  type PayloadInput,
  type PayloadOutput,
  type Tasks,
  type TaskType,
  tasks,
} from '../../generated/tasks.ts';
import type {
  Enqueued,
  EnqueuedCounts,
  Enqueuer,
  HandlerContext,
  HandlerRegistry,
  PayloadPath,
} from '../../src/index.ts';

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

test('a list is answered one by one, a stream with counts, of the module and of an enqueuer with middleware', () => {
  const own = makeEnqueue({ middleware: [async (_call, next) => next({ headers: { traceparent: '00' } })] });
  expectTypeOf(own).toEqualTypeOf<Enqueuer<Tasks>>();
  for (const many of [enqueueMany, own.enqueueMany]) {
    expectTypeOf(many(tx, 'explore_purge', [payload] as const)).toEqualTypeOf<Promise<Enqueued[]>>();
    expectTypeOf(many(tx, 'explore_purge', new Set([payload]))).toEqualTypeOf<Promise<EnqueuedCounts>>();
    async function* stream() {
      yield payload;
    }
    expectTypeOf(many(tx, 'explore_purge', stream())).toEqualTypeOf<Promise<EnqueuedCounts>>();
  }
  expectTypeOf(own.enqueue(tx, 'explore_purge', payload)).toEqualTypeOf<Promise<Enqueued>>();
  // @ts-expect-error the schema is the one that was generated
  makeEnqueue({ schema: 'other' });
  // @ts-expect-error headers are strings
  makeEnqueue({ middleware: [(_call, next) => next({ headers: { attempt: 1 } })] });
});

test('limits of one enqueue are durations, and a wake is one of two', () => {
  void enqueue(tx, 'explore_purge', payload, { timeout: '10s', retention: '24h', wake: 'poll' });
  void enqueue(tx, 'explore_purge', payload, { retention: false });
  // @ts-expect-error a ceiling cannot be switched off
  void enqueue(tx, 'explore_purge', payload, { timeout: false });
  // @ts-expect-error no such wake
  void enqueue(tx, 'explore_purge', payload, { wake: 'later' });
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
  // @ts-expect-error a stream of something else
  void enqueueMany(tx, 'explore_purge', new Set([{ stackId: 1 }]));
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
