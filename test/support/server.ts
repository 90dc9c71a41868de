import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { startEmbeddedPostgres } from '../../src/embedded/index.ts';

/** The server of a test run, and what becomes of the databases that failed tests left on it. */
export interface TestServer {
  readonly url: string;
  /** Where `kept` databases can be looked at afterwards is said in the answer. */
  stop(kept: readonly string[]): Promise<string>;
}

/** A server given by `TASKQ_TEST_DATABASE_URL`, a container when asked for, else an embedded one. */
export async function startTestServer(): Promise<TestServer> {
  const given = process.env['TASKQ_TEST_DATABASE_URL'];
  if (given) return { url: given, stop: async () => `on ${new URL(given).host || 'the server given'}` };
  return process.env['TASKQ_TEST_CONTAINERS'] ? startContainer() : startEmbedded();
}

async function startEmbedded(): Promise<TestServer> {
  const binaryPackage = process.env['TASKQ_TEST_POSTGRES_PACKAGE'];
  const server = await startEmbeddedPostgres({
    durable: false,
    ...(binaryPackage ? { binaryPackage } : {}),
    settings: { max_connections: '300' },
  });
  return {
    url: server.url(),
    async stop(kept) {
      // One place, replaced by each failing run, or failing runs would fill the disk.
      const place = path.join(
        path.dirname(server.connection().host),
        `taskq-failed-${process.getuid?.() ?? 0}`,
      );
      if (kept.length === 0) {
        await server.stop();
        return '';
      }
      await rm(place, { recursive: true, force: true });
      await server.stop({ keepIn: place });
      return `in the data directory ${place}`;
    },
  };
}

async function startContainer(): Promise<TestServer> {
  const sockets = ['/var/run/docker.sock', `${process.env['XDG_RUNTIME_DIR'] ?? tmpdir()}/docker.sock`];
  if (!process.env['DOCKER_HOST'] && !sockets.some((socket) => existsSync(socket))) {
    throw withoutStack(
      'TASKQ_TEST_CONTAINERS is set, but there is no Docker here: run `npm test` without it',
    );
  }
  const { PostgreSqlContainer } = await import('@testcontainers/postgresql');
  const image = process.env['TASKQ_TEST_IMAGE'] ?? 'postgres:18';
  const unsafe = ['fsync=off', 'synchronous_commit=off', 'full_page_writes=off', 'max_connections=300'];
  const container = await new PostgreSqlContainer(image)
    .withCommand(['postgres', ...unsafe.flatMap((setting) => ['-c', setting])])
    .start()
    .catch((error: Error) => {
      throw withoutStack(`the container ${image} did not start: ${error.message}`);
    });
  return {
    url: container.getConnectionUri(),
    async stop() {
      await container.stop();
      return 'nowhere: they went with the container';
    },
  };
}

/** An error that the reader needs no stack for: vitest prints the message alone. */
function withoutStack(message: string): Error {
  const error = new Error(message);
  error.stack = message;
  return error;
}
