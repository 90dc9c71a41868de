import type { Sql, TransactionSql } from 'postgres';
import { queryExecutor } from '../../../src/index.ts';
import { enqueue } from '../tasks.ts';

export const postgresTransaction = (tx: TransactionSql) =>
  queryExecutor((text, values) => tx.unsafe(text, [...values]));

export async function placeOrder(sql: Sql, id: number): Promise<void> {
  await sql.begin(async (tx) => {
    await enqueue(postgresTransaction(tx), 'order_placed', { orderId: id });
    await tx`insert into orders (id) values (${id})`;
  });
}
