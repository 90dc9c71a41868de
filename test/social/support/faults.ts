import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { S3Client } from '@aws-sdk/client-s3';
import { sql } from 'kysely';
import { S3Storage } from '../../../src/social/services/file-storage.ts';
import { RedisGeoIndex } from '../../../src/social/services/geo-index.ts';
import type { Stores } from '../../../src/social/services/wiring.ts';
import { onTestFinished } from '../../support/test.ts';
import { openSocialDatabase, type World } from './social.ts';

interface Watch {
  /** After each statement of a handler's own, before the next one. */
  readonly afterStatement?: () => void | Promise<void>;
  /** After each answer of the object store. */
  readonly afterObject?: () => void;
}

/** What a transaction is framed by. */
const FRAME = /^(begin|commit|rollback|select set_config)/i;

/** The world's own stores over connections that are watched; `s3` is the watched client. */
export function watchedStores(
  world: World,
  { afterStatement, afterObject }: Watch,
): Stores & { readonly s3: S3Client } {
  const db = openSocialDatabase(world.databaseUrl, async (text) => {
    if (!FRAME.test(text)) await afterStatement?.();
  });
  const s3 = world.connectS3();
  s3.middlewareStack.add(
    (next) => async (request) => {
      const answer = await next(request);
      afterObject?.();
      return answer;
    },
    { step: 'initialize', name: 'watch' },
  );
  onTestFinished(async () => {
    s3.destroy();
    await db.destroy();
  });
  return { ...world.stores, db, s3, storage: new S3Storage(s3, world.bucket) };
}

/** Stores whose database ends the connection once the handler has had its first statement. */
export function storesThatFailHalfWay(world: World): Stores {
  let isFirst = true;
  return watchedStores(world, {
    async afterStatement() {
      if (!isFirst) return;
      isFirst = false;
      await sql`
        SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'idle in transaction'`.execute(world.db);
    },
  });
}

/** Stores of which none can be reached. */
export async function deadStores(world: World): Promise<Stores> {
  const port = await closedPort();
  const db = openSocialDatabase(`postgres://nobody@127.0.0.1:${port}/none`);
  const s3 = new S3Client({
    endpoint: `http://127.0.0.1:${port}`,
    region: 'us-east-1',
    credentials: { accessKeyId: 'none', secretAccessKey: 'none' },
    maxAttempts: 1,
  });
  onTestFinished(async () => {
    s3.destroy();
    await db.destroy();
  });
  const stores = { ...world.stores, db, storage: new S3Storage(s3, world.bucket) };
  if (world.redis === undefined) return stores;
  const gone = world.redis.duplicate();
  return { ...stores, geo: new RedisGeoIndex(gone, world.geoKey) };
}

/** An object store that takes every request and answers none. `asked` resolves at the first connection. */
export async function silentStorage(): Promise<{ storage: S3Storage; asked: Promise<unknown> }> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    socket.on('error', () => {});
    sockets.add(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const s3 = new S3Client({
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    region: 'us-east-1',
    credentials: { accessKeyId: 'none', secretAccessKey: 'none' },
    forcePathStyle: true,
    maxAttempts: 1,
  });
  onTestFinished(() => {
    s3.destroy();
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { storage: new S3Storage(s3, 'bucket'), asked: once(server, 'connection') };
}

async function closedPort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
