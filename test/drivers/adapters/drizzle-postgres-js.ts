import { sql } from 'drizzle-orm';
import type { PostgresJsDatabase } from 'drizzle-orm/postgres-js';
import { queryExecutor } from '../../../src/index.ts';
import { enqueue } from '../tasks.ts';

export const drizzleTransaction = (tx: Pick<PostgresJsDatabase, 'execute'>) =>
  queryExecutor((text, values) => {
    // Drizzle numbers the parameters itself: 'a $1 b' becomes 'a ', the first value, ' b'.
    const chunks = text
      .split(/\$(\d+)/)
      .map((piece, at) => (at % 2 === 0 ? sql.raw(piece) : sql.param(values[Number(piece) - 1])));
    return tx.execute(sql.join(chunks));
  });

export async function placeOrder(db: PostgresJsDatabase, id: number): Promise<void> {
  await db.transaction(async (tx) => {
    await enqueue(drizzleTransaction(tx), 'order_placed', { orderId: id });
    await tx.execute(sql`insert into orders (id) values (${id})`);
  });
}
