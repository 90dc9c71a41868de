import type { DataSource, EntityManager } from 'typeorm';
import { queryExecutor } from '../../../src/index.ts';
import { enqueue } from '../tasks.ts';

export const typeormTransaction = (manager: EntityManager) =>
  queryExecutor(async (text, values) => {
    const answer = await manager.query(text, [...values]);
    // To a DELETE TypeORM answers the rows and their number.
    return Array.isArray(answer[0]) ? answer[0] : answer;
  });

export async function placeOrder(dataSource: DataSource, id: number): Promise<void> {
  await dataSource.transaction(async (manager) => {
    await enqueue(typeormTransaction(manager), 'order_placed', { orderId: id });
    await manager.query('insert into orders (id) values ($1)', [id]);
  });
}
