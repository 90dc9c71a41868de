import { type Duration, durationMs } from './domain/duration.ts';
import { TaskqError } from './domain/errors.ts';
import { type Health, HealthWatch } from './domain/health.ts';
import {
  LEASE_MARGIN_MS,
  LEASE_MARGIN_MS_MAX,
  LEASE_MARGIN_MS_MIN,
  POLL_INTERVAL_MS,
  POLL_INTERVAL_MS_MAX,
  POLL_INTERVAL_MS_MIN,
  POOL_MAX_DEFAULT,
  QUEUE_WEIGHT_DEFAULT,
  QUEUE_WEIGHT_MAX,
  RETENTION_MS_DEFAULT,
  SHUTDOWN_ABORT_WAIT_MS,
  SHUTDOWN_GRACE_MS_MAX,
  SLOTS_DEFAULT,
  SLOTS_MAX,
} from './domain/limits.ts';
import type { Logger } from './domain/logger.ts';
import { contained, type Observer } from './domain/observer.ts';
import { checkSchemaName } from './domain/schema-name.ts';
import { checkName } from './domain/task-definition.ts';
import type { HandlerRegistry } from './domain/task-set.ts';
import { toError } from './domain/thrown.ts';
import { type AppClock, systemClock, systemTimers, type Timer, type Timers } from './domain/time.ts';
import { logObserver } from './logging/log-observer.ts';
import { Presence } from './maintenance/presence.ts';
import { Pruner } from './maintenance/pruner.ts';
import { typeFacts } from './masking/type-facts.ts';
import type { AppMetrics, ReplicaFacts, ReplicaMetrics } from './metrics/source.ts';
import {
  type ConnectionSettings,
  connectionConfig,
  connectionKey,
  type Lanes,
  openLanes,
} from './postgres/lanes.ts';
import { Listener } from './processor/listener.ts';
import { watchLoopDelay } from './processor/loop-delay.ts';
import { Processor } from './processor/processor.ts';
import type { RunMiddleware } from './processor/run-middleware.ts';
import { type CronEntries, checkCronPayloads, isCronEntries } from './scheduler/entries.ts';
import { Scheduler } from './scheduler/scheduler.ts';
import { checkPrivileges, checkSchema } from './statements/schema-check.ts';
import { registerTypes } from './statements/task-types.ts';
import { CLOCK_MOVED, wakeChannel } from './statements/wake-channel.ts';
import { traceRuns } from './tracing/trace-runs.ts';

/**
 * What a replica does. `processor` drains tasks; `cron` enqueues those of the cron list; `prune` deletes what is past
 * its time once an hour.
 */
export const ROLES = ['processor', 'cron', 'prune'] as const;
export type Role = (typeof ROLES)[number];

export interface AppOptions {
  /** The primary: a URL or pg's connection settings. */
  readonly database: ConnectionSettings;
  /** A read replica for discovery; the primary by default. */
  readonly readDatabase?: ConnectionSettings;
  /** For LISTEN, which no transaction pooler carries: the primary directly. `database` by default. */
  readonly listenDatabase?: ConnectionSettings;
  /** Default `'taskq'`. */
  readonly schema?: string;
  /** What `defineHandlers` of the generated tasks made. */
  readonly handlers: HandlerRegistry;
  /** What `defineCron` of the generated tasks made. Any number of replicas may have it: each tick has one enqueue. */
  readonly cron?: CronEntries;
  /** Tasks run at once in this process. Default 4. */
  readonly slots?: number;
  /**
   * Queues served here; every queue by default. With weights, `{ critical: 6, default: 3, low: 1 }`, each has its share
   * of the claims while it has due tasks; without, all are served alike. What `taskq queue weight` says goes before.
   */
  readonly queues?: readonly string[] | Readonly<Record<string, number>>;
  /** Serves a queue only while those of a greater weight have nothing due: low ones may starve. Default false. */
  readonly strictQueues?: boolean;
  /** Default: all of them. */
  readonly roles?: readonly Role[];
  /** How long running handlers may go on at a stop before their signal aborts. Default none. */
  readonly shutdownGrace?: Duration;
  /** How long handlers may take to return after the abort before they are left behind. Default 5 s. */
  readonly abortWait?: Duration;
  /** Dead letters are deleted this long after their last attempt. Default 7 days. */
  readonly retention?: Duration;
  /**
   * How long a lease outlives its handler's deadline. Default 30 s, which also covers clocks that disagree.
   * Shorter takes a crashed worker's task over sooner; the same in every replica.
   */
  readonly leaseMargin?: Duration;
  /** The backstop's interval. Default 5 s. */
  readonly pollInterval?: Duration;
  /** Connections of each lane at the most. Default 4. */
  readonly poolMax?: number;
  /** Default true; off behind PgBouncer below 1.21. */
  readonly preparedStatements?: boolean;
  /** Structured lines for every event. Default: nothing is logged. */
  readonly logger?: Logger;
  /** Hears every event, beside the logger. */
  readonly observer?: Observer;
  /** What `createMetrics` of `taskq/metrics` made. Default: nothing is counted. */
  readonly metrics?: AppMetrics;
  /** Around every handler run, the first one outermost: contexts, spans, measurements. They cannot change a run. */
  readonly middleware?: readonly RunMiddleware[];
  /** Default true: while an OpenTelemetry SDK is registered, every run is a span outside of the middleware. */
  readonly tracing?: boolean;
  readonly clock?: AppClock;
  readonly timers?: Timers;
}

/** A replica: everything one process runs of the queue. */
export interface App {
  /**
   * Checks the schema and the role's privileges, then starts. A second call does nothing more.
   * @throws TaskqError `PAYLOAD_INVALID` (and what else an enqueue throws before its statement) for a payload of the
   *   cron list, `SCHEMA_BEHIND`, `PRIVILEGE_MISSING`, before the first task is taken; database errors as they are
   */
  start(): Promise<void>;
  /** Stops claiming, aborts and releases what runs, closes. Any number of calls; resolves when all is closed. */
  stop(): Promise<void>;
  /** Slots in all, busy, and lost to handlers past their deadline. */
  status(): { slots: number; busy: number; overrun: number };
  /** Whether it has started, listens and looks for tasks and ticks; if not, why. Asks nobody. */
  health(): Health;
}

/**
 * Builds a replica; nothing is opened before `start`.
 * @throws TaskqError `CONFIG_INVALID` or `DURATION_INVALID`, naming the option
 */
export function createApp(options: AppOptions): App {
  const settings = checkSettings(options);
  const { logger, clock = systemClock, timers = systemTimers } = options;
  const watched: Watched = {
    health: new HealthWatch({
      runsTasks: settings.roles.includes('processor'),
      hasCron: settings.roles.includes('cron') && options.cron !== undefined,
    }),
    metrics: options.metrics?.replica(replicaFacts(options, settings.roles)),
    presence: new Presence({ clock, timers, roles: settings.roles, queues: settings.queues }),
  };
  const observers = [
    watched.health.observe,
    watched.presence.observe,
    ...(watched.metrics === undefined ? [] : [watched.metrics.observe]),
    ...(logger === undefined ? [] : [logObserver(logger)]),
    ...(options.observer === undefined ? [] : [options.observer]),
  ];
  const observe = contained(observers, (error) => {
    logger?.error({ event: 'observer_failed', error: toError(error).message }, 'an observer threw');
  });
  return new Replica(options, settings, { ...watched, observe }, clock, timers);
}

/** Who follows what the replica does. */
interface Watched {
  readonly health: HealthWatch;
  readonly metrics: ReplicaMetrics | undefined;
  readonly presence: Presence;
}

function replicaFacts({ handlers, cron }: AppOptions, roles: readonly Role[]): ReplicaFacts {
  return {
    types: [...handlers].map(([type, { definition, revision }]) => ({
      type,
      queue: definition.queue,
      revision,
    })),
    entries: cron?.entries.map(({ name }) => name) ?? [],
    listens: roles.includes('processor'),
  };
}

class Replica implements App {
  readonly #options: AppOptions;
  readonly #settings: Settings;
  readonly #observe: Observer;
  readonly #watched: Watched;
  readonly #clock: AppClock;
  readonly #timers: Timers;
  #parts: Parts | undefined;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(
    options: AppOptions,
    settings: Settings,
    watched: Watched & { readonly observe: Observer },
    clock: AppClock,
    timers: Timers,
  ) {
    this.#options = options;
    this.#settings = settings;
    this.#observe = watched.observe;
    this.#watched = watched;
    this.#clock = clock;
    this.#timers = timers;
  }

  start(): Promise<void> {
    if (this.#stopping !== undefined)
      return Promise.reject(new TaskqError('SHUTDOWN', 'this app was stopped; create another'));
    this.#starting ??= this.#start();
    return this.#starting;
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  status(): { slots: number; busy: number; overrun: number } {
    return this.#parts?.processor?.status() ?? { slots: 0, busy: 0, overrun: 0 };
  }

  health(): Health {
    return this.#watched.health.health();
  }

  async #start(): Promise<void> {
    const { schema, roles } = this.#settings;
    const cron = roles.includes('cron') ? this.#options.cron : undefined;
    if (cron !== undefined) await checkCronPayloads(cron);
    const lanes = openLanes({ ...this.#settings, ...databases(this.#options) });
    try {
      await checkSchema(lanes.write.executor, schema);
      await checkPrivileges(lanes.write.executor, schema);
      // Before the first task is taken: what a tool may show of it must be known by then.
      if (roles.includes('processor')) await registerTypes(lanes.write, typeFacts(this.#options.handlers));
    } catch (error) {
      await lanes.close();
      throw error;
    }
    const parts: Parts = {
      lanes,
      processor: undefined,
      scheduler: undefined,
      listener: undefined,
      pruner: undefined,
      loopDelay: undefined,
    };
    if (roles.includes('processor')) this.#startProcessor(parts);
    if (cron !== undefined) this.#startScheduler(parts, cron);
    if (roles.includes('prune')) {
      const { retentionMs } = this.#settings;
      parts.pruner = new Pruner({
        write: lanes.write,
        retentionMs,
        timers: this.#timers,
        observe: this.#observe,
        random: Math.random,
      });
      parts.pruner.start();
    }
    this.#parts = parts;
    this.#beginMetrics(lanes);
    this.#watched.presence.begin({
      write: lanes.write,
      observe: this.#observe,
      status: () => ({ ...this.status(), running: parts.processor?.runningTasks() ?? [] }),
    });
    this.#observe({
      kind: 'started',
      slots: parts.processor?.status().slots ?? 0,
      types: [...this.#options.handlers.keys()],
    });
  }

  #beginMetrics({ read }: Lanes): void {
    const { readDatabase, database } = this.#options;
    this.#watched.metrics?.begin(
      { lane: read, database: connectionKey(readDatabase ?? database, this.#settings.schema) },
      () => this.status(),
    );
  }

  #startProcessor(parts: Parts): void {
    const { lanes } = parts;
    const { listenDatabase, database, handlers } = this.#options;
    const shared = { timers: this.#timers, observe: this.#observe };
    const processor = new Processor({
      ...this.#settings,
      ...lanes,
      registry: handlers,
      clock: this.#clock,
      ...shared,
    });
    processor.start();
    parts.processor = processor;
    parts.listener = new Listener({
      connection: connectionConfig(listenDatabase ?? database),
      channel: wakeChannel(this.#settings.schema),
      onWake: (payload) => {
        processor.signal();
        if (payload === CLOCK_MOVED) parts.scheduler?.resync();
      },
      ...shared,
    });
    parts.listener.start();
    const { metrics } = this.#watched;
    parts.loopDelay = watchLoopDelay(this.#timers, this.#observe, metrics?.loopDelay);
  }

  #startScheduler(parts: Parts, cron: CronEntries): void {
    const shared = { clock: this.#clock, timers: this.#timers, observe: this.#observe };
    parts.scheduler = new Scheduler({ cron, write: parts.lanes.write, ...shared });
    parts.scheduler.start();
  }

  // In the reverse order of the start: no new work, then the work, then what it ran on.
  async #stop(): Promise<void> {
    await this.#starting?.catch(() => undefined);
    const parts = this.#parts;
    if (parts === undefined) return;
    this.#observe({ kind: 'stopping' });
    const scheduled = parts.scheduler?.stop();
    const pruned = parts.pruner?.stop();
    const forgotten = this.#watched.presence.stop();
    const listened = parts.listener?.stop();
    await parts.processor?.stop(this.#settings);
    parts.loopDelay?.cancel();
    await Promise.all([scheduled, pruned, listened, forgotten]);
    this.#watched.metrics?.end();
    await parts.lanes.close();
    this.#observe({ kind: 'stopped' });
  }
}

interface Parts {
  readonly lanes: Lanes;
  processor: Processor | undefined;
  scheduler: Scheduler | undefined;
  listener: Listener | undefined;
  pruner: Pruner | undefined;
  loopDelay: Timer | undefined;
}

function databases({ database, readDatabase }: AppOptions) {
  return { database, readDatabase };
}

type Settings = ReturnType<typeof checkSettings>;

function checkSettings(options: AppOptions) {
  const { roles = ROLES } = options;
  const weights = queueWeights(options.queues);
  for (const role of roles) {
    if (!ROLES.includes(role))
      throw invalid('roles', `there is no role '${role}'; there are ${ROLES.join(', ')}`);
  }
  checkCron(options.cron, roles);
  return {
    schema: checkSchemaName(options.schema ?? 'taskq'),
    middleware: [
      ...(options.tracing === false ? [] : [traceRuns()]),
      ...checkMiddleware(options.middleware ?? []),
    ],
    slots: wholeNumber(options.slots ?? SLOTS_DEFAULT, 'slots', SLOTS_MAX),
    queues: weights === undefined ? undefined : [...weights.keys()],
    queueOrder: { weights: weights ?? new Map<string, number>(), strict: options.strictQueues ?? false },
    roles,
    poolMax: wholeNumber(options.poolMax ?? POOL_MAX_DEFAULT, 'poolMax', SLOTS_MAX),
    preparedStatements: options.preparedStatements ?? true,
    applicationName: 'taskq',
    graceMs: durationMs(options.shutdownGrace ?? 0, 'shutdownGrace', { maxMs: SHUTDOWN_GRACE_MS_MAX }),
    abortWaitMs: durationMs(options.abortWait ?? SHUTDOWN_ABORT_WAIT_MS, 'abortWait', {
      maxMs: SHUTDOWN_GRACE_MS_MAX,
    }),
    retentionMs: durationMs(options.retention ?? RETENTION_MS_DEFAULT, 'retention'),
    marginMs: durationMs(options.leaseMargin ?? LEASE_MARGIN_MS, 'leaseMargin', {
      minMs: LEASE_MARGIN_MS_MIN,
      maxMs: LEASE_MARGIN_MS_MAX,
    }),
    pollIntervalMs: durationMs(options.pollInterval ?? POLL_INTERVAL_MS, 'pollInterval', {
      minMs: POLL_INTERVAL_MS_MIN,
      maxMs: POLL_INTERVAL_MS_MAX,
    }),
  };
}

function checkCron(cron: unknown, roles: readonly Role[]): void {
  if (cron !== undefined && !isCronEntries(cron)) throw invalid('cron', 'expected what defineCron returned');
  if (cron === undefined && roles.every((role) => role === 'cron'))
    throw invalid('cron', "the one role is 'cron', and there is no list of entries");
}

function checkMiddleware(middleware: readonly RunMiddleware[]): readonly RunMiddleware[] {
  if (middleware.every((around) => typeof around === 'function')) return [...middleware];
  throw invalid('middleware', 'expected a list of functions');
}

/** Undefined for every queue there is. */
function queueWeights(queues: AppOptions['queues']): ReadonlyMap<string, number> | undefined {
  if (queues === undefined) return undefined;
  const weights = isListOfNames(queues)
    ? queues.map((queue) => [queue, QUEUE_WEIGHT_DEFAULT] as const)
    : Object.entries(queues);
  if (weights.length === 0)
    throw invalid('queues', 'name at least one queue, or leave it out to serve every queue');
  return new Map(
    weights.map(([queue, weight]) => [
      checkName(queue, 'queues'),
      wholeNumber(weight, `queues, weight of '${queue}'`, QUEUE_WEIGHT_MAX),
    ]),
  );
}

function isListOfNames(queues: NonNullable<AppOptions['queues']>): queues is readonly string[] {
  return Array.isArray(queues);
}

function wholeNumber(value: number, name: string, max: number): number {
  if (Number.isInteger(value) && value >= 1 && value <= max) return value;
  throw invalid(name, `expected a whole number from 1 to ${max}, received ${String(value)}`);
}

function invalid(name: string, problem: string): TaskqError {
  return new TaskqError('CONFIG_INVALID', `${name}: ${problem}`);
}
