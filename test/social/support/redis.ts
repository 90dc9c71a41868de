import { connectRedis, type RedisServer, startRedis } from '../../../src/social/demo/redis.ts';

/** A Redis for the tests of one file. */
export type TestRedis = RedisServer;

/** The server given by `TASKQ_TEST_REDIS_URL`, else one started here; undefined where there is neither. */
export async function startTestRedis(): Promise<TestRedis | undefined> {
  const url = process.env['TASKQ_TEST_REDIS_URL'];
  if (url) return { connect: () => connectRedis({ url }), stop: async () => {} };
  const server = await startRedis();
  if (server === undefined) {
    const reason = 'there is no redis-server on this machine, and TASKQ_TEST_REDIS_URL is not set';
    // As in CI: a skipped promise is not a kept one.
    if (process.env['TASKQ_REQUIRE_SYSTEM_TOOLS'] === '1') throw new Error(reason);
    console.warn(`SKIPPED: tests of the geo index: ${reason}.`);
  }
  return server;
}
