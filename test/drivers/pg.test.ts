import pg from 'pg';
import { pgTransaction, placeOrder } from './adapters/pg.ts';
import { keepsThePromises } from './promises.ts';

keepsThePromises({
  errorName: 'DatabaseError',
  sqlState: (error) => (error as pg.DatabaseError).code,
  async open(database) {
    const client = new pg.Client(database.connection);
    await client.connect();
    return {
      async transaction(work) {
        await client.query('begin');
        try {
          await work(pgTransaction(client), (id) =>
            client.query('insert into orders (id) values ($1)', [id]),
          );
          await client.query('commit');
        } catch (error) {
          await client.query('rollback');
          throw error;
        }
      },
      placeOrder: (id) => placeOrder(client, id),
      close: () => client.end(),
    };
  },
});
