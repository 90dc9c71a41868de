import type { Knex } from 'knex';
import { queryExecutor } from '../../../src/index.ts';
import { enqueue } from '../tasks.ts';

export const knexTransaction = (trx: Knex.Transaction) =>
  queryExecutor(async (text, values) => {
    const bindings: Knex.RawBinding[] = [];
    // Knex numbers the parameters itself, and marks them by ?.
    const raw = text.replaceAll('?', '\\?').replaceAll(/\$(\d+)/g, (_, place: string) => {
      bindings.push(values[Number(place) - 1] ?? null);
      return '?';
    });
    return (await trx.raw(raw, bindings)).rows;
  });

export async function placeOrder(knex: Knex, id: number): Promise<void> {
  await knex.transaction(async (trx) => {
    await enqueue(knexTransaction(trx), 'order_placed', { orderId: id });
    await trx('orders').insert({ id });
  });
}
