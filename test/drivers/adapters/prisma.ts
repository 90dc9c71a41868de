import { queryExecutor } from '../../../src/index.ts';
import type { Prisma, PrismaClient } from '../prisma/client/client.ts';
import { enqueue } from '../tasks.ts';

export const prismaTransaction = (tx: Prisma.TransactionClient) =>
  queryExecutor((text, values) => tx.$queryRawUnsafe<object[]>(text, ...values));

export async function placeOrder(prisma: PrismaClient, id: number): Promise<void> {
  await prisma.$transaction(async (tx) => {
    await enqueue(prismaTransaction(tx), 'order_placed', { orderId: id });
    await tx.order.create({ data: { id } });
  });
}
