import type { Kysely, Transaction } from 'kysely';
import type pg from 'pg';
import { enqueueExplorePurge } from '../../generated/tasks.ts';
import { dequeueUnleased, type Enqueued, type QueryExecutor, queryExecutor } from '../../src/index.ts';
import { expectTypeOf, test } from '../support/test.ts';

/** As the class of another copy of the package: the same members, without this copy's private fields. */
type OfAnotherCopy<Class> = { [Member in keyof Class]: Class[Member] };
type OtherKysely<Tables> = OfAnotherCopy<Kysely<Tables>>;
type OtherTransaction<Tables> = OfAnotherCopy<Transaction<Tables>>;

interface AppTables {
  stacks: { id: string };
}

const payload = { stackId: '3c1f0f3e-5a52-4d53-9d0c-1c9cbb3f3c4e' };
declare const client: pg.Client;

test('a query executor goes where a transaction goes', () => {
  const tx = queryExecutor(async (text, values) => (await client.query(text, [...values])).rows);
  expectTypeOf(tx).toEqualTypeOf<QueryExecutor>();
  expectTypeOf(enqueueExplorePurge(tx, payload)).toEqualTypeOf<Promise<Enqueued>>();
  const id = {} as Enqueued['id'];
  expectTypeOf(dequeueUnleased(tx, id)).toEqualTypeOf<Promise<boolean>>();
  expectTypeOf(dequeueUnleased({} as Transaction<AppTables>, id)).toEqualTypeOf<Promise<boolean>>();
});

test('a Kysely of another copy of the package is a transaction too', () => {
  // Its classes have private fields, so neither copy's class is assignable to the other's.
  expectTypeOf<OtherKysely<AppTables>>().not.toExtend<Kysely<AppTables>>();
  expectTypeOf(enqueueExplorePurge({} as OtherKysely<AppTables>, payload)).resolves.toEqualTypeOf<Enqueued>();
  expectTypeOf(
    enqueueExplorePurge({} as OtherTransaction<AppTables>, payload),
  ).resolves.toEqualTypeOf<Enqueued>();
});

test('what runs no statements is no transaction', () => {
  // @ts-expect-error a client is not wrapped
  void enqueueExplorePurge(client, payload);
  // @ts-expect-error the result, not its rows
  queryExecutor((text, values) => client.query(text, [...values]));
  // @ts-expect-error a number of rows
  queryExecutor(async (text, values) => (await client.query(text, [...values])).rowCount);
  // A function for any values takes these too.
  queryExecutor(async (_text: string, _values: readonly unknown[]) => []);
});
