import { PrismaPg } from '@prisma/adapter-pg';
import { placeOrder, prismaTransaction } from './adapters/prisma.ts';
import { Prisma, PrismaClient } from './prisma/client/client.ts';
import { keepsThePromises } from './promises.ts';

keepsThePromises({
  errorName: Prisma.PrismaClientKnownRequestError.name,
  sqlState: (error) => {
    const { meta } = error as { meta?: { driverAdapterError?: { cause?: { originalCode?: string } } } };
    return meta?.driverAdapterError?.cause?.originalCode;
  },
  async open(database) {
    const prisma = new PrismaClient({ adapter: new PrismaPg(database.connection) });
    return {
      transaction: (work) =>
        prisma.$transaction((tx) =>
          work(prismaTransaction(tx), (id) => tx.order.create({ data: { id, note: 'ordered' } })),
        ),
      placeOrder: (id) => placeOrder(prisma, id),
      close: () => prisma.$disconnect(),
    };
  },
});
