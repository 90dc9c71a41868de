import { DrizzleQueryError, sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import pg from 'pg';
import { drizzleTransaction, placeOrder } from './adapters/drizzle.ts';
import { keepsThePromises } from './promises.ts';

keepsThePromises({
  errorName: DrizzleQueryError.name,
  sqlState: (error) => ((error as DrizzleQueryError).cause as pg.DatabaseError).code,
  async open(database) {
    const pool = new pg.Pool(database.connection);
    const db = drizzle(pool);
    return {
      transaction: (work) =>
        db.transaction((tx) =>
          work(drizzleTransaction(tx), (id) => tx.execute(sql`insert into orders (id) values (${id})`)),
        ),
      placeOrder: (id) => placeOrder(db, id),
      close: () => pool.end(),
    };
  },
});
