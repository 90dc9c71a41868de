import { fork } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ObjectStoreSettings } from '../handlers/index.ts';

/** An object store of one's own. It keeps what it holds in a temporary folder, and ends with this process. */
export interface ObjectStoreServer {
  readonly settings: ObjectStoreSettings & { readonly endpoint: string };
  stop(): Promise<void>;
}

/** What s3rver takes, and nobody else. */
const CREDENTIALS = { accessKeyId: 'S3RVER', secretAccessKey: 'S3RVER' };

/**
 * Starts s3rver on a free port of this machine only.
 * @param nodeOptions for its process, beside its own
 * @throws Error when it ends before it listens
 */
export async function startObjectStoreServer(
  nodeOptions: readonly string[] = [],
): Promise<ObjectStoreServer> {
  // Of the same kind as this file: `.js` in the build.
  const self = fileURLToPath(import.meta.url);
  const entry = path.join(path.dirname(self), `object-store-process${path.extname(self)}`);
  const child = fork(entry, [], {
    execArgv: ['--openssl-legacy-provider', ...nodeOptions],
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  const exited = once(child, 'exit');
  const [said] = await Promise.race([once(child, 'message'), exited.then(() => [undefined])]);
  if (said === undefined) throw new Error('the object store ended before it listened');
  const { port, bucket } = said as { port: number; bucket: string };
  return {
    settings: {
      bucket,
      region: 'us-east-1',
      endpoint: `http://127.0.0.1:${port}`,
      credentials: CREDENTIALS,
    },
    async stop() {
      if (child.connected) child.disconnect();
      await exited;
    },
  };
}
