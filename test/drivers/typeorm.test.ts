import type pg from 'pg';
import { DataSource, EntitySchema, QueryFailedError } from 'typeorm';
import { placeOrder, typeormTransaction } from './adapters/typeorm.ts';
import { keepsThePromises } from './promises.ts';

const Order = new EntitySchema<{ id: number }>({
  name: 'orders',
  columns: { id: { type: Number, primary: true } },
});

keepsThePromises({
  errorName: QueryFailedError.name,
  sqlState: (error) => (error as QueryFailedError<pg.DatabaseError>).driverError.code,
  async open(database) {
    const dataSource = new DataSource({ type: 'postgres', url: database.url, entities: [Order] });
    await dataSource.initialize();
    return {
      transaction: (work) =>
        dataSource.transaction((manager) =>
          work(typeormTransaction(manager), (id) => manager.insert(Order, { id })),
        ),
      placeOrder: (id) => placeOrder(dataSource, id),
      close: () => dataSource.destroy(),
    };
  },
});
