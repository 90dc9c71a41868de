import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { createClient } from '@redis/client';

export type RedisClient = Awaited<ReturnType<typeof connectRedis>>;

/** A Redis for the demo and the tests. */
export interface RedisServer {
  /** A connected client; the caller destroys it. */
  connect(): Promise<RedisClient>;
  stop(): Promise<void>;
}

const START_POLL_MS = 10;

/** Starts `redis-server` on a socket of its own. Undefined where there is none on the machine. */
export async function startRedis(): Promise<RedisServer | undefined> {
  if (!(await isInstalled())) return undefined;
  const folder = await mkdtemp(path.join(tmpdir(), 'taskq-redis-'));
  const socket = path.join(folder, 'socket');
  const settings = [
    '--port',
    '0',
    '--unixsocket',
    socket,
    '--save',
    '',
    '--appendonly',
    'no',
    '--dir',
    folder,
  ];
  // The shell passes the end of this process on: its standard input closes, and it ends the server.
  const script = '"$0" "$@" </dev/null & pid=$!; cat >/dev/null; kill $pid; wait $pid';
  const server = spawn('sh', ['-c', script, 'redis-server', ...settings], {
    stdio: ['pipe', 'ignore', 'inherit'],
  });
  const ended = once(server, 'exit');
  const stop = async () => {
    server.stdin.end();
    await ended;
    await rm(folder, { recursive: true, force: true });
  };
  while (!existsSync(socket) && server.exitCode === null) await delay(START_POLL_MS);
  return { stop, connect: () => connectRedis({ socket: { path: socket } }) };
}

/** A server that is there already, by its URL. */
export async function connectRedis(where: { url: string } | { socket: { path: string } }) {
  // A command that finds no connection fails at once, and its task comes round again.
  const options = { disableOfflineQueue: true };
  const client =
    'url' in where
      ? createClient({ ...options, url: where.url })
      : createClient({ ...options, socket: { ...where.socket, tls: false } });
  // Heard here or it would end the process; commands fail by themselves.
  client.on('error', () => {});
  await client.connect();
  return client;
}

async function isInstalled(): Promise<boolean> {
  const asked = spawn('redis-server', ['--version'], { stdio: 'ignore' });
  return new Promise((resolve) => {
    asked.on('error', () => resolve(false));
    asked.on('exit', (code) => resolve(code === 0));
  });
}
