import knex from 'knex';
import type pg from 'pg';
import { knexTransaction, placeOrder } from './adapters/knex.ts';
import { keepsThePromises } from './promises.ts';

keepsThePromises({
  errorName: 'DatabaseError',
  sqlState: (error) => (error as pg.DatabaseError).code,
  async open(database) {
    const db = knex({ client: 'pg', connection: database.connection });
    return {
      transaction: (work) =>
        db.transaction((trx) => work(knexTransaction(trx), (id) => trx('orders').insert({ id }))),
      placeOrder: (id) => placeOrder(db, id),
      close: () => db.destroy(),
    };
  },
});
