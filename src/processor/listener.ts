import pg from 'pg';
import { CONNECT_TIMEOUT_MS, LISTENER_ANSWER_MS, LISTENER_HEARTBEAT_MS } from '../domain/limits.ts';
import type { Observer } from '../domain/observer.ts';
import { retryDelayMs } from '../domain/retry-delay.ts';
import { toError } from '../domain/thrown.ts';
import { sleep, type Timers } from '../domain/time.ts';

// One LISTEN connection of a replica, on the primary and outside the pools: a standby cannot LISTEN, and a
// transaction pooler hands notifications to whoever happens to hold the server connection. A connection that
// went silent looks like a quiet queue, so it is asked for an answer now and then. Whatever is committed while
// nobody listens is found by the look that follows every connect.

export interface ListenerDeps {
  readonly connection: pg.ClientConfig;
  readonly channel: string;
  readonly timers: Timers;
  readonly observe: Observer;
  /** At each notification, with its payload, and once after each connect, with an empty one. */
  onWake(payload: string): void;
}

export class Listener {
  readonly #deps: ListenerDeps;
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;

  constructor(deps: ListenerDeps) {
    this.#deps = deps;
  }

  /** Begins to listen, and goes on until `stop`. Does not wait for the first connect: the poll works without. */
  start(): void {
    this.#running ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { timers, observe } = this.#deps;
    const stopping = this.#stopping.signal;
    let connects = 0;
    for (let failures = 0; !stopping.aborted; ) {
      try {
        await this.#listen(() => {
          failures = 0;
          observe({ kind: 'listener_connected', again: connects > 0 });
          connects += 1;
          this.#deps.onWake('');
        });
      } catch (error) {
        failures += 1;
        const retryMs = retryDelayMs(failures);
        if (failures === 1) observe({ kind: 'listener_lost', error: toError(error), retryMs });
        await sleep(timers, retryMs, stopping);
      }
    }
  }

  /** One connection, from connect to loss. Resolves when the listener stops, rejects when the connection is lost. */
  async #listen(onConnected: () => void): Promise<void> {
    const client = new pg.Client({
      ...this.#deps.connection,
      application_name: 'taskq listener',
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      keepAlive: true,
    });
    const lost = new Promise<never>((_resolve, reject) => {
      client.on('error', reject);
      client.on('end', () => reject(new Error('the LISTEN connection was closed')));
    });
    // Nobody waits for it yet while the connect is under way.
    lost.catch(() => undefined);
    client.on('notification', ({ payload = '' }) => {
      if (this.#stopping.signal.aborted) return;
      this.#deps.observe({ kind: 'wake_received' });
      this.#deps.onWake(payload);
    });
    try {
      await Promise.race([client.connect(), lost]);
      await this.#answered(client.query(`listen ${pg.escapeIdentifier(this.#deps.channel)}`), lost);
      onConnected();
      while (!this.#stopping.signal.aborted) {
        await Promise.race([sleep(this.#deps.timers, LISTENER_HEARTBEAT_MS, this.#stopping.signal), lost]);
        if (!this.#stopping.signal.aborted) await this.#answered(client.query('select 1'), lost);
      }
    } finally {
      await close(client);
    }
  }

  async #answered(answer: Promise<unknown>, lost: Promise<never>): Promise<void> {
    const over = new AbortController();
    const silence = async (): Promise<never> => {
      await sleep(this.#deps.timers, LISTENER_ANSWER_MS, over.signal);
      // A blocked event loop lets the timer win although the answer has arrived: it gets a turn to be read.
      await new Promise((resolve) => setImmediate(resolve));
      await new Promise((resolve) => setImmediate(resolve));
      throw new Error('the LISTEN connection did not answer');
    };
    const silent = silence();
    silent.catch(() => undefined);
    answer.catch(() => undefined);
    try {
      await Promise.race([answer, lost, silent]);
    } finally {
      over.abort();
    }
  }
}

/** Ends the connection, politely if the server is there to hear it. */
async function close(client: pg.Client): Promise<void> {
  const { stream } = (client as unknown as { connection: { stream: { destroy(): void } } }).connection;
  const forced = setTimeout(() => stream.destroy(), 1_000);
  await client.end().catch(() => undefined);
  clearTimeout(forced);
  stream.destroy();
}
