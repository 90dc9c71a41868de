import { mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type S3rver from 's3rver';

// The entry of the object store's process: one of its own, since s3rver's continuation tokens need a cipher that
// Node gives only to a process started with `--openssl-legacy-provider`.

/** The bucket that is there from the start. */
const BUCKET = 'platform';

// Required, not imported: the class inherits a `default` from Koa, which some loaders take for the module's own.
const Server = createRequire(import.meta.url)('s3rver') as typeof S3rver;
const directory = await mkdtemp(path.join(tmpdir(), 'taskq-objects-'));
const server = new Server({
  address: '127.0.0.1',
  port: 0,
  silent: true,
  directory,
  configureBuckets: [{ name: BUCKET }],
});
// The parent is gone, however it went, or has asked for the end.
process.once('disconnect', async () => {
  await rm(directory, { recursive: true, force: true });
  process.exit();
});
// Ctrl-C reaches the whole process group; the parent stops its processes in its own order.
process.on('SIGINT', () => {});
const { port } = await server.run();
process.send?.({ port, bucket: BUCKET });
