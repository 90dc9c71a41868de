import postgres from 'postgres';
import { placeOrder, postgresTransaction } from './adapters/postgres-js.ts';
import { keepsThePromises } from './promises.ts';

keepsThePromises({
  errorName: 'PostgresError',
  sqlState: (error) => (error as postgres.PostgresError).code,
  async open(database) {
    const sql = postgres(database.connection);
    return {
      async transaction(work) {
        await sql.begin((tx) =>
          work(postgresTransaction(tx), (id) => tx`insert into orders (id) values (${id})`),
        );
      },
      placeOrder: (id) => placeOrder(sql, id),
      close: () => sql.end(),
    };
  },
});
