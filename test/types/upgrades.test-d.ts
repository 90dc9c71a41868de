import { expectTypeOf, test } from 'vitest';
import { z } from 'zod';
import { defineTask, type PayloadRevisions } from '../../src/index.ts';

// As `generated/tasks.ts` does for the task types of a project.
declare module '../../src/index.ts' {
  interface PayloadRevisions {
    'upgrades-test': { 1: { id: string }; 2: { id: string; n?: number }; 3: { id: bigint } };
  }
}

const ceiling = '1m';

test('an upgrade is given what rows of the revision before hold', () => {
  defineTask({
    type: 'upgrades-test',
    payload: z.object({ id: z.bigint() }),
    ceiling,
    upgrades: {
      2: (old) => {
        expectTypeOf(old).toEqualTypeOf<{ id: string }>();
        return { ...old, n: 1 };
      },
      3: (old) => {
        expectTypeOf(old).toEqualTypeOf<{ id: string; n?: number }>();
        return { id: BigInt(old.id) };
      },
      // The one to be written next, from the revision that is current in the manifest.
      4: (old) => {
        expectTypeOf(old).toEqualTypeOf<{ id: bigint }>();
        return old;
      },
      5: (old) => {
        expectTypeOf(old).toEqualTypeOf<unknown>();
        return old;
      },
    },
  });
});

test('what was not generated yet is unknown', () => {
  defineTask({
    type: 'never_generated',
    payload: z.object({}),
    ceiling,
    upgrades: {
      2: (old) => {
        expectTypeOf(old).toEqualTypeOf<unknown>();
        return old;
      },
    },
  });
});

test('the generated types are there for definitions that import nothing generated', () => {
  expectTypeOf<PayloadRevisions['explore_purge'][1]>().toEqualTypeOf<{ stackId: string }>();
  defineTask({
    type: 'explore_purge',
    payload: z.object({}),
    ceiling,
    upgrades: {
      2: (old) => {
        expectTypeOf(old).toEqualTypeOf<{ stackId: string }>();
        return old;
      },
    },
  });
});

test('a wrong upgrade does not compile', () => {
  const payload = z.object({});
  // @ts-expect-error no such property in revision 1
  defineTask({ type: 'upgrades-test', payload, ceiling, upgrades: { 2: (old) => old.n } });
  // @ts-expect-error another type than revision 1 has
  defineTask({ type: 'upgrades-test', payload, ceiling, upgrades: { 2: (old: { id: number }) => old } });
  // @ts-expect-error no function
  defineTask({ type: 'upgrades-test', payload, ceiling, upgrades: { 2: 'two' } });
  // @ts-expect-error no revision
  defineTask({ type: 'upgrades-test', payload, ceiling, upgrades: { second: (old: unknown) => old } });
});

test('the type of the payload and the name of the type are inferred beside upgrades', () => {
  const task = defineTask({
    type: 'upgrades-test',
    payload: z.object({ id: z.bigint() }),
    ceiling,
    upgrades: { 2: (old) => old },
  });
  expectTypeOf(task.type).toEqualTypeOf<'upgrades-test'>();
  expectTypeOf<z.input<typeof task.payload>>().toEqualTypeOf<{ id: bigint }>();
});
