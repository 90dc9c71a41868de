import type { ClientBase } from 'pg';
import { queryExecutor } from '../../../src/index.ts';
import { enqueue } from '../tasks.ts';

/** The transaction that this client is in. */
export const pgTransaction = (client: ClientBase) =>
  queryExecutor(async (text, values) => (await client.query(text, [...values])).rows);

export async function placeOrder(client: ClientBase, id: number): Promise<void> {
  await client.query('begin');
  try {
    await enqueue(pgTransaction(client), 'order_placed', { orderId: id });
    await client.query('insert into orders (id) values ($1)', [id]);
    await client.query('commit');
  } catch (error) {
    await client.query('rollback');
    throw error;
  }
}
