import { types } from 'node:util';
import type { ZodType, z } from 'zod';
import { type Duration, durationMs, formatDuration } from './duration.ts';
import { TaskqError } from './errors.ts';
import {
  BACKOFF_FIRST_MS,
  BACKOFF_MAX_MS,
  CEILING_MS_MAX,
  CEILING_MS_MIN,
  HEARTBEAT_MS_MIN,
  HEARTBEATS_OF_A_LEASE,
  MAX_ATTEMPTS_DEFAULT,
  MAX_ATTEMPTS_MAX,
  NAME_LENGTH_MAX,
  RECORD_RETENTION_MS_MIN,
} from './limits.ts';
import { checkUnique, type PayloadPath, type Uniqueness, type UniqueOptions } from './uniqueness.ts';

/** By a registered symbol, not by class: the codegen loads definitions through another module loader. */
const DEFINITION = Symbol.for('taskq.TaskDefinition');

/** How an idle worker learns of an enqueue: by the notification that commits with it, or by looking. */
export type Wake = 'notify' | 'poll';

export interface BackoffPolicy {
  /** Wait after the first failed attempt. */
  readonly firstMs: number;
  /** Where the doubling ends. */
  readonly maxMs: number;
}

/**
 * What rows of each payload revision hold: task type → revision → type. Empty here; the codegen adds to it from its
 * manifest, and `upgrades` takes the types of its functions from it.
 */
// biome-ignore lint/suspicious/noEmptyInterface: an interface, since only that can be added to from outside.
export interface PayloadRevisions {}

/** A payload of one revision → a payload of the next. Must not be asynchronous. */
export type Upgrade = (old: unknown) => unknown;

// Declared as a method, which may take a narrower argument than the index signature beside it says.
type UpgradeFrom<Old> = { upgrade(old: Old): unknown }['upgrade'];

type Successor<Count, Counted extends readonly unknown[] = []> = Counted['length'] extends Count
  ? [...Counted, unknown]['length'] & number
  : Successor<Count, [...Counted, unknown]>;

interface AnyUpgrades {
  readonly [revision: number]: UpgradeFrom<unknown>;
}

/** Revision → how a payload of the revision before becomes one of this. `unknown` where nothing was generated yet. */
export type Upgrades<Type extends string> = Type extends keyof PayloadRevisions
  ? {
      readonly [Revision in keyof PayloadRevisions[Type] as Revision extends number
        ? Successor<Revision>
        : never]?: UpgradeFrom<PayloadRevisions[Type][Revision]>;
    } & AnyUpgrades
  : AnyUpgrades;

/** One task type: the single source of its payload type, its limits and its queue. Imports no handler. */
export interface TaskDefinition<
  Type extends string = string,
  Payload extends ZodType = ZodType,
  Cursor extends ZodType | undefined = ZodType | undefined,
> {
  readonly [DEFINITION]: true;
  readonly type: Type;
  readonly payload: Payload;
  readonly cursor: Cursor;
  readonly queue: string;
  readonly ceilingMs: number;
  /** Undefined for a lease that lasts from the claim to the end without a further write. */
  readonly heartbeatMs: number | undefined;
  readonly maxAttempts: number;
  readonly backoff: BackoffPolicy;
  /** Undefined when an enqueue is unique only by its own options. */
  readonly unique: Uniqueness | undefined;
  /** How long the record of a finished task is kept, in whole milliseconds; undefined for not at all. */
  readonly retentionMs: number | undefined;
  readonly wake: Wake;
  /** By the revision they lead to. */
  readonly upgrades: Readonly<Record<number, Upgrade>>;
}

export interface TaskDefinitionOptions<
  Type extends string,
  Payload extends ZodType,
  Cursor extends ZodType | undefined,
> {
  /** The name rows carry, such as `'explore_purge'` or `'cron:purge'`. Renaming it strands the rows that wait. */
  readonly type: Type;
  /** What an enqueue must give, and (after one parse) what the handler receives. */
  readonly payload: Payload;
  /**
   * The handler's longest run, about ten times its expected worst case. It is there to catch a hung
   * handler, not to budget a working one. A crashed worker's task waits this long plus the margin (30 s).
   */
  readonly ceiling: Duration;
  /**
   * Opt-in: the lease is stamped for three heartbeats and extended while the handler runs, so that a crashed
   * worker's task is taken over within three of them instead of after the ceiling. One small write a beat.
   * A handler that blocks the event loop, or a database that does not answer, for longer than two beats costs the
   * run: its signal aborts with `LEASE_LOST`. From 1 s to a third of the ceiling.
   */
  readonly heartbeat?: Duration;
  /** For sliced work: the shape of the position that `ctx.advanceCursor` commits. */
  readonly cursor?: Cursor;
  /** Default `'default'`. */
  readonly queue?: string;
  /** Runs in all, the first included. Default 20. */
  readonly maxAttempts?: number;
  /** The wait after a failure: `first` (default 15 s) doubling up to `max` (default 10 min). */
  readonly backoff?: { readonly first?: Duration; readonly max?: Duration };
  /** What every enqueue of the type is unique by, unless it says otherwise itself (`unique: false` forces it). */
  readonly unique?: UniqueOptions<PayloadPath<z.input<Payload>>>;
  /**
   * How long the record of each finished task is kept, with what its handler gave `ctx.result`, unless an enqueue says
   * otherwise. From 1 s. Default: none is kept, the row is gone when the task is done.
   */
  readonly retention?: Duration;
  /**
   * Default `'notify'`: the commit of an enqueue wakes an idle worker, which starts the task at once. `'poll'` spares
   * the notification, since PostgreSQL commits transactions that notify one after the other in the whole server;
   * an idle replica then finds the task at its next poll (every 5 s by default), a busy one as soon as a slot is free.
   */
  readonly wake?: Wake;
  /**
   * For rows that were enqueued before the payload's schema changed: `upgrades: { 2: (old) => … }` makes a payload
   * of revision 2 from one of revision 1. Applied in sequence up to the current revision, then the schema parses.
   * A revision that accepts what the one before did needs none; `taskq codegen` says which do.
   */
  readonly upgrades?: Upgrades<Type>;
}

/**
 * Defines a task type.
 * @throws TaskqError `DEFINITION_INVALID` or `DURATION_INVALID`, naming the type and the field
 */
export function defineTask<
  const Type extends string,
  Payload extends ZodType,
  Cursor extends ZodType | undefined = undefined,
>(options: TaskDefinitionOptions<Type, Payload, Cursor>): TaskDefinition<Type, Payload, Cursor> {
  const type = checkName(options.type, 'type');
  const of = `task type '${type}'`;
  if (!isSchema(options.payload)) {
    throw new TaskqError('DEFINITION_INVALID', `${of}: payload must be a zod schema`);
  }
  if (options.cursor !== undefined && !isSchema(options.cursor)) {
    throw new TaskqError('DEFINITION_INVALID', `${of}: cursor must be a zod schema`);
  }
  const firstMs = durationMs(options.backoff?.first ?? BACKOFF_FIRST_MS, `backoff.first of ${of}`);
  const maxMs = durationMs(options.backoff?.max ?? Math.max(BACKOFF_MAX_MS, firstMs), `backoff.max of ${of}`);
  if (maxMs < firstMs) {
    throw new TaskqError('DEFINITION_INVALID', `${of}: backoff.max is shorter than backoff.first`);
  }
  const ceilingMs = durationMs(options.ceiling, `ceiling of ${of}`, {
    minMs: CEILING_MS_MIN,
    maxMs: CEILING_MS_MAX,
  });
  return Object.freeze({
    [DEFINITION]: true as const,
    type: options.type,
    payload: options.payload,
    cursor: options.cursor as Cursor,
    queue: checkName(options.queue ?? 'default', `queue of ${of}`),
    ceilingMs,
    heartbeatMs: options.heartbeat === undefined ? undefined : heartbeatMs(options.heartbeat, ceilingMs, of),
    maxAttempts: checkMaxAttempts(options.maxAttempts ?? MAX_ATTEMPTS_DEFAULT, of),
    backoff: Object.freeze({ firstMs, maxMs }),
    unique: options.unique === undefined ? undefined : uniqueness(options.unique, of),
    retentionMs:
      options.retention === undefined
        ? undefined
        : recordRetentionMs(options.retention, `retention of ${of}`),
    wake: checkWake(options.wake ?? 'notify', `wake of ${of}`),
    upgrades: checkUpgrades(options.upgrades ?? {}, of),
  });
}

function uniqueness(unique: unknown, of: string): Uniqueness {
  try {
    return checkUnique(unique, `unique of ${of}`);
  } catch (error) {
    if (!(error instanceof TaskqError) || error.code !== 'OPTION_INVALID') throw error;
    throw new TaskqError('DEFINITION_INVALID', error.message, { cause: error });
  }
}

function checkUpgrades(upgrades: object, of: string): Readonly<Record<number, Upgrade>> {
  for (const [revision, upgrade] of Object.entries(upgrades) as [string, unknown][]) {
    if (!/^[1-9]\d*$/.test(revision) || Number(revision) < 2) {
      throw new TaskqError(
        'DEFINITION_INVALID',
        `${of}: upgrades are keyed by the revision they lead to, a whole number from 2; received ${describe(revision)}`,
      );
    }
    // The payload is parsed in the same breath; a promise would be poison for every older row.
    if (typeof upgrade !== 'function' || types.isAsyncFunction(upgrade)) {
      throw new TaskqError(
        'DEFINITION_INVALID',
        `${of}: upgrades[${revision}] must be a function that is not async`,
      );
    }
  }
  return Object.freeze({ ...upgrades });
}

function heartbeatMs(heartbeat: Duration, ceilingMs: number, of: string): number {
  const maxMs = ceilingMs / HEARTBEATS_OF_A_LEASE;
  if (maxMs < HEARTBEAT_MS_MIN) {
    throw new TaskqError(
      'DEFINITION_INVALID',
      `heartbeat of ${of}: a ceiling below ${formatDuration(HEARTBEAT_MS_MIN * HEARTBEATS_OF_A_LEASE)} leaves no room for one`,
    );
  }
  return durationMs(heartbeat, `heartbeat of ${of}`, { minMs: HEARTBEAT_MS_MIN, maxMs });
}

export function isTaskDefinition(value: unknown): value is TaskDefinition {
  return typeof value === 'object' && value !== null && DEFINITION in value;
}

/**
 * A name that can be a row's type or queue.
 * @throws TaskqError `DEFINITION_INVALID` naming `field`
 */
export function checkName(name: unknown, field: string): string {
  if (typeof name !== 'string' || name.trim() === '') {
    throw new TaskqError(
      'DEFINITION_INVALID',
      `${field}: expected a non-empty string, received ${describe(name)}`,
    );
  }
  if (name.length > NAME_LENGTH_MAX) {
    throw new TaskqError(
      'DEFINITION_INVALID',
      `${field}: at most ${NAME_LENGTH_MAX} characters, received ${name.length}`,
    );
  }
  // PostgreSQL stores neither, and line breaks would split log lines and tables.
  if (/[\p{Cc}\u2028\u2029]/u.test(name) || !name.isWellFormed()) {
    throw new TaskqError(
      'DEFINITION_INVALID',
      `${field}: control characters, line breaks and lone surrogates are not allowed`,
    );
  }
  return name;
}

/** @throws TaskqError `DEFINITION_INVALID` for anything but a whole number from 1 to 1000 */
export function checkMaxAttempts(value: unknown, of: string): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= MAX_ATTEMPTS_MAX)
    return value;
  throw new TaskqError(
    'DEFINITION_INVALID',
    `${of}: maxAttempts must be a whole number from 1 to ${MAX_ATTEMPTS_MAX}, received ${describe(value)}`,
  );
}

/**
 * How long a record is kept, in whole milliseconds, as the column takes it.
 * @throws TaskqError `DURATION_INVALID` below 1 s
 */
export function recordRetentionMs(retention: unknown, field: string): number {
  return Math.ceil(durationMs(retention, field, { minMs: RECORD_RETENTION_MS_MIN }));
}

/** @throws TaskqError `DEFINITION_INVALID` naming `field` */
export function checkWake(wake: unknown, field: string): Wake {
  if (wake === 'notify' || wake === 'poll') return wake;
  throw new TaskqError(
    'DEFINITION_INVALID',
    `${field}: expected 'notify' or 'poll', received ${describe(wake)}`,
  );
}

function isSchema(value: unknown): value is ZodType {
  return typeof value === 'object' && value !== null && '_zod' in value;
}

function describe(value: unknown): string {
  return typeof value === 'string' ? `'${value}'` : String(value);
}

// The types a definition stands for. Input: what an enqueue gives; output: what the handler gets.
export type PayloadInput<D extends TaskDefinition> = z.input<D['payload']>;
export type PayloadOutput<D extends TaskDefinition> = z.output<D['payload']>;
export type CursorOf<D extends TaskDefinition> = D['cursor'] extends ZodType ? z.output<D['cursor']> : never;
export type CursorInput<D extends TaskDefinition> = D['cursor'] extends ZodType
  ? z.input<D['cursor']>
  : never;
