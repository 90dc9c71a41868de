import type { Timers } from '../../src/domain/time.ts';
import {
  type App,
  type AppOptions,
  createApp,
  type HandlerRegistry,
  type HandlersFor,
  type QueueEvent,
} from '../../src/index.ts';
import { ManualClock } from './clock.ts';
import { handlersFor, type TestTasks } from './tasks.ts';
import { test as databaseTest } from './test.ts';

type Kind = QueueEvent['kind'];
type EventOf<K extends Kind> = Extract<QueueEvent, { kind: K }>;

interface Waiting {
  take(): boolean;
}

/** Every event of a replica, in order, and a way to wait for one. */
export class EventLog {
  readonly all: QueueEvent[] = [];
  readonly #waiting = new Set<Waiting>();

  readonly observe = (event: QueueEvent): void => {
    this.all.push(event);
    for (const waiting of [...this.#waiting]) if (waiting.take()) this.#waiting.delete(waiting);
  };

  of<K extends Kind>(kind: K, where: (event: EventOf<K>) => boolean = () => true): EventOf<K>[] {
    return this.all.filter((event): event is EventOf<K> => event.kind === kind && where(event as EventOf<K>));
  }

  /** The first event of the kind that matches, whether it has come already or is still to come. */
  async first<K extends Kind>(kind: K, where?: (event: EventOf<K>) => boolean): Promise<EventOf<K>> {
    const [event] = await this.atLeast(1, kind, where);
    return event as EventOf<K>;
  }

  /** The first that comes after this call. */
  async next<K extends Kind>(kind: K, where?: (event: EventOf<K>) => boolean): Promise<EventOf<K>> {
    const before = this.of(kind, where).length;
    const events = await this.atLeast(before + 1, kind, where);
    return events[before] as EventOf<K>;
  }

  /** The first `count` and whatever came with them, once there are so many. */
  async atLeast<K extends Kind>(
    count: number,
    kind: K,
    where?: (event: EventOf<K>) => boolean,
  ): Promise<EventOf<K>[]> {
    await this.until(() => this.of(kind, where).length >= count, `${count} × ${kind}`);
    return this.of(kind, where);
  }

  /** Resolves once `condition` holds of the log; rejects after a time in which nothing healthy hangs. */
  until(condition: () => boolean, what: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const take = () => {
        if (!condition()) return false;
        clearTimeout(timer);
        resolve();
        return true;
      };
      const waiting: Waiting = { take };
      const timer = setTimeout(() => {
        this.#waiting.delete(waiting);
        const kinds = this.all.map((event) => event.kind).join(' ');
        reject(new Error(`waited in vain for ${what} among: ${kinds}`));
      }, EVENT_WAIT_MS);
      if (!take()) this.#waiting.add(waiting);
    });
  }
}

const EVENT_WAIT_MS = 30_000;

export interface TestReplica {
  readonly app: App;
  readonly events: EventLog;
}

export type ReplicaOptions = Partial<Omit<AppOptions, 'handlers' | 'observer'>> & {
  readonly handlers?: Partial<HandlersFor<TestTasks>>;
  /** Instead of the test tasks and `handlers`: a test's own task types. */
  readonly registry?: HandlerRegistry;
};

/** Starts a replica on the test's database. Resolves once it listens and its idle slots have looked. */
export type StartReplica = (options?: ReplicaOptions) => Promise<TestReplica>;

interface Fixtures {
  startReplica: StartReplica;
}

/**
 * `test` with replicas: those that a test started are stopped before its database goes.
 * They poll once a minute, so that only a wake explains a prompt start; `pollInterval` says otherwise.
 */
export const test = databaseTest.extend<Fixtures>({
  startReplica: async ({ database }, use) => {
    const started: { app: App; timers: Timers | undefined }[] = [];
    await use(async ({ handlers, registry, ...options } = {}) => {
      const events = new EventLog();
      const app = createApp({
        database: database.url,
        roles: ['processor'],
        pollInterval: '1m',
        abortWait: '1s',
        ...options,
        handlers: registry ?? handlersFor(handlers),
        observer: events.observe,
      });
      started.push({ app, timers: options.timers });
      await app.start();
      if ((options.roles ?? ['processor']).includes('processor')) {
        await Promise.all([events.first('listener_connected'), events.first('discovered')]);
      }
      return { app, events };
    });
    await Promise.all(started.map(stopped));
  },
});

/** A stop waits on the replica's timers: a manual clock is moved until it is through, also after a failed test. */
async function stopped({ app, timers }: { app: App; timers: Timers | undefined }): Promise<void> {
  let isStopped = false;
  const stopping = app.stop().finally(() => {
    isStopped = true;
  });
  while (timers instanceof ManualClock && !isStopped) await timers.advanceAsync(100);
  await stopping;
}

/**
 * Resolves once every slot of a replica that was started on an empty queue waits for a wake: all slots have looked
 * together at the start, and one has looked again because the listener connected.
 */
export function whenIdle({ events }: TestReplica): Promise<void> {
  const isIdle = () => {
    const lastLook = events.all.findLastIndex(({ kind }) => kind === 'discovered');
    const connected = events.all.findIndex(({ kind }) => kind === 'listener_connected');
    return events.of('discovered').length >= 2 && connected >= 0 && lastLook > connected;
  };
  return events.until(isIdle, 'two looks, the last of them after the listener connected');
}

/** A promise with its two ends, for a handler that waits for the test. */
export function gate<Value = void>(): { promise: Promise<Value>; open: (value: Value) => void } {
  let open!: (value: Value) => void;
  const promise = new Promise<Value>((resolve) => {
    open = resolve;
  });
  return { promise, open };
}
