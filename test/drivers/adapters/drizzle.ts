import { sql } from 'drizzle-orm';
import type { NodePgDatabase } from 'drizzle-orm/node-postgres';
import { queryExecutor } from '../../../src/index.ts';
import { enqueue } from '../tasks.ts';

export const drizzleTransaction = (tx: Pick<NodePgDatabase, 'execute'>) =>
  queryExecutor(async (text, values) => {
    // Drizzle numbers the parameters itself: 'a $1 b' becomes 'a ', the first value, ' b'.
    const chunks = text
      .split(/\$(\d+)/)
      .map((piece, at) => (at % 2 === 0 ? sql.raw(piece) : sql.param(values[Number(piece) - 1])));
    return (await tx.execute(sql.join(chunks))).rows;
  });

export async function placeOrder(db: NodePgDatabase, id: number): Promise<void> {
  await db.transaction(async (tx) => {
    await enqueue(drizzleTransaction(tx), 'order_placed', { orderId: id });
    await tx.execute(sql`insert into orders (id) values (${id})`);
  });
}
