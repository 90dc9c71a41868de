import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';

/** An object store for the demo and the tests, on this machine, gone when it is stopped. */
export interface ObjectStore {
  readonly endpoint: string;
  createBucket(name: string): Promise<void>;
  /** A client of the store; the caller destroys it. */
  connect(): S3Client;
  stop(): Promise<void>;
}

// It ends with its parent, however that ends, and takes its folder with it: the channel between them closes.
const PROGRAM = `
  const [module, directory] = process.argv.slice(1);
  const S3rver = require(module);
  process.on('disconnect', () => {
    require('node:fs').rmSync(directory, { recursive: true, force: true });
    process.exit();
  });
  new S3rver({ address: '127.0.0.1', port: 0, silent: true, directory })
    .run()
    .then(({ port }) => process.send(port));`;

/** What the store accepts. It is reached from this machine alone. */
const CREDENTIALS = { accessKeyId: 'S3RVER', secretAccessKey: 'S3RVER' };

/** Starts s3rver in a process of its own, on a free port. */
export async function startObjectStore(): Promise<ObjectStore> {
  const folder = await mkdtemp(path.join(tmpdir(), 'taskq-objects-'));
  const server = spawn(
    process.execPath,
    // s3rver signs the token of a listing's next page with a cipher that OpenSSL 3 calls legacy.
    [
      '--openssl-legacy-provider',
      '--eval',
      PROGRAM,
      createRequire(import.meta.url).resolve('s3rver'),
      folder,
    ],
    { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] },
  );
  const ended = once(server, 'exit');
  const stop = async () => {
    server.kill();
    await ended;
    await rm(folder, { recursive: true, force: true });
  };
  const ready = once(server, 'message').then(([port]) => port as number);
  const port = await Promise.race([ready, ended.then(() => undefined)]);
  if (port === undefined) {
    await stop();
    throw new Error('the object store s3rver ended before it was ready');
  }
  const endpoint = `http://127.0.0.1:${port}`;
  return {
    endpoint,
    stop,
    connect: () => connect(endpoint),
    createBucket: (name) => createBucket(endpoint, name),
  };
}

function connect(endpoint: string): S3Client {
  return new S3Client({
    endpoint,
    region: 'us-east-1',
    forcePathStyle: true,
    credentials: CREDENTIALS,
    // s3rver would store the framing of a checksummed stream as content.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    // The queue tries again; a client that does so by itself would only use the handler's time.
    maxAttempts: 1,
  });
}

async function createBucket(endpoint: string, name: string): Promise<void> {
  const client = connect(endpoint);
  try {
    await client.send(new CreateBucketCommand({ Bucket: name }));
  } finally {
    client.destroy();
  }
}
