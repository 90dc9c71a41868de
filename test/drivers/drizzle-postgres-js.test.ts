import { DrizzleQueryError, sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/postgres-js';
import postgres from 'postgres';
import { drizzleTransaction, placeOrder } from './adapters/drizzle-postgres-js.ts';
import { keepsThePromises } from './promises.ts';

keepsThePromises({
  errorName: DrizzleQueryError.name,
  sqlState: (error) => ((error as DrizzleQueryError).cause as postgres.PostgresError).code,
  async open(database) {
    const client = postgres(database.connection);
    const db = drizzle(client);
    return {
      transaction: (work) =>
        db.transaction((tx) =>
          work(drizzleTransaction(tx), (id) => tx.execute(sql`insert into orders (id) values (${id})`)),
        ),
      placeOrder: (id) => placeOrder(db, id),
      close: () => client.end(),
    };
  },
});
