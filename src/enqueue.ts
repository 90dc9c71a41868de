import type { Kysely } from 'kysely';
import type { z } from 'zod';
import { type Duration, durationMs } from './domain/duration.ts';
import { TaskqError } from './domain/errors.ts';
import type { TaskId } from './domain/ids.ts';
import {
  ENQUEUE_BATCH_BYTES,
  ENQUEUE_BATCH_ROWS,
  PAYLOAD_BYTES_MAX,
  PAYLOAD_BYTES_MAX_DEFAULT,
} from './domain/limits.ts';
import { checkPayload } from './domain/payload-check.ts';
import { encodePayload, payloadBytes } from './domain/payload-codec.ts';
import { checkSchemaName } from './domain/schema-name.ts';
import { checkMaxAttempts, checkName } from './domain/task-definition.ts';
import type { RegisteredTask, TaskSet } from './domain/task-set.ts';
import {
  checkUnique,
  orderOfKeys,
  type PayloadPath,
  type Uniqueness,
  type UniqueOptions,
  uniqueKeyOf,
} from './domain/uniqueness.ts';
import { insertBytes, insertTasks, type NewTask } from './statements/enqueue.ts';
import { enqueueUnique, type NewUniqueTask } from './statements/enqueue-unique.ts';
import { type CallerLane, callerLane, type QueryExecutor } from './statements/lanes.ts';
import { dequeueUnleased as deleteUnleased } from './statements/settle.ts';

/**
 * The caller's Kysely or Transaction, over whatever tables and with whatever plugins;
 * or what `queryExecutor` makes of the transaction of another library.
 */
// biome-ignore lint/suspicious/noExplicitAny: the caller's tables are its own.
export type CallerTransaction = Kysely<any> | QueryExecutor;

/** `Path`: the fields that `unique.by` may name, `PayloadPath` of the payload. Without it `by` names none. */
export interface EnqueueOptions<Path extends string = never> {
  /** Not before this moment: a Date, or ISO text with an offset such as `'2027-01-31T09:00:00Z'`. */
  readonly runAt?: Date | string;
  /** Not before this long after the enqueue, by the database's clock. Either this or `runAt`. */
  readonly delay?: Duration;
  /** Instead of the type's own queue. */
  readonly queue?: string;
  /** Instead of the type's own limit; runs in all, the first included. */
  readonly maxAttempts?: number;
  /** Small strings that travel with the task and come back in the handler's context. */
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * Only when nothing stands in the way of its key, instead of the type's own rule; `false` for none: the task is
   * enqueued whatever there is, has no key, and stands in nobody's way.
   */
  readonly unique?: UniqueOptions<Path> | false;
}

/** What an enqueue answers. */
export interface Enqueued {
  /** Of the new task, or of the one that was in the way. */
  readonly id: TaskId;
  /** `existing`: nothing was written. `replaced`: the waiting task has the new payload. Never but with `unique`. */
  readonly status: 'enqueued' | 'existing' | 'replaced';
}

export interface EnqueuerOptions {
  /** The schema of the queue's tables. Default `'taskq'`. */
  readonly schema?: string;
  /** The longest payload, in bytes of its stored JSON. Default 1 MiB. */
  readonly maxPayloadBytes?: number;
}

type TypeIn<Tasks extends TaskSet> = keyof Tasks & string;
type PayloadIn<Tasks extends TaskSet, Type extends TypeIn<Tasks>> = z.input<
  Tasks[Type]['definition']['payload']
>;

export interface Enqueuer<Tasks extends TaskSet> {
  /**
   * Enqueues a task inside the caller's transaction: it exists exactly when that transaction commits,
   * and so does the wake that tells an idle slot. The payload is validated before anything is written.
   * With `unique` it waits for any other transaction that has enqueued the key and not ended yet.
   * @throws TaskqError `UNKNOWN_TASK_TYPE`, `PAYLOAD_INVALID`, `PAYLOAD_UNSTORABLE`, `PAYLOAD_TOO_LARGE`,
   *   `OPTION_INVALID`, all before any statement is sent; `TASK_EXISTS`, with `onConflict: 'error'`, after it, and the
   *   transaction can still go on; database errors pass through unchanged. Above READ COMMITTED a concurrent
   *   enqueue of the same key is one: a serialization failure (40001).
   */
  enqueue<Type extends TypeIn<Tasks>>(
    tx: CallerTransaction,
    type: Type,
    payload: PayloadIn<Tasks, Type>,
    options?: EnqueueOptions<PayloadPath<PayloadIn<Tasks, Type>>>,
  ): Promise<Enqueued>;

  /**
   * Enqueues any number of tasks of one type, in as few statements as their size allows. Every payload is
   * validated before the first statement. Answers in the order given; an empty list writes nothing.
   * Outside a transaction a list of more than one statement may be written in part if the connection fails.
   * With `unique` each payload has its own key. They are locked, and inserted, in the order of the keys, so that two
   * lists never wait for each other; one list leaves no room for the deadlock that one enqueue after another does.
   * @throws TaskqError as `enqueue` does; the message names the index. `TASK_EXISTS` comes after others of the list
   *   have been inserted: roll back.
   */
  enqueueMany<Type extends TypeIn<Tasks>>(
    tx: CallerTransaction,
    type: Type,
    payloads: readonly PayloadIn<Tasks, Type>[],
    options?: EnqueueOptions<PayloadPath<PayloadIn<Tasks, Type>>>,
  ): Promise<Enqueued[]>;
}

/**
 * The enqueue functions of a set of task types; `generated/tasks.ts` calls this.
 * @throws TaskqError `CONFIG_INVALID` for a payload limit that is no number of bytes within jsonb's own
 */
export function createEnqueuer<Tasks extends TaskSet>(
  tasks: Tasks,
  options: EnqueuerOptions = {},
): Enqueuer<Tasks> {
  const schema = checkSchemaName(options.schema ?? 'taskq');
  const bytesMax = checkBytesMax(options.maxPayloadBytes ?? PAYLOAD_BYTES_MAX_DEFAULT);
  return {
    async enqueue(tx, type, payload, enqueueOptions) {
      const row = taskRow(registered(tasks, type), settings(enqueueOptions), bytesMax);
      const [enqueued] = await insertInBatches(callerLane(tx, schema), [await row(payload, '')]);
      return enqueued as Enqueued;
    },
    async enqueueMany(tx, type, payloads, enqueueOptions) {
      const row = taskRow(registered(tasks, type), settings(enqueueOptions), bytesMax);
      if (!Array.isArray(payloads)) {
        throw new TaskqError('OPTION_INVALID', `enqueueMany of ${type}: expected an array of payloads`);
      }
      const rows: NewRow[] = [];
      for (const [index, payload] of payloads.entries()) rows.push(await row(payload, `[${index}]`));
      return insertInBatches(callerLane(tx, schema), rows);
    },
  };
}

/**
 * Removes a task that its own enqueuer has done inline meanwhile, in the transaction given.
 * Answers false when a worker holds it or it is gone; then the work is that worker's.
 */
export async function dequeueUnleased(
  tx: CallerTransaction,
  id: TaskId,
  options: { readonly schema?: string } = {},
): Promise<boolean> {
  return (await deleteUnleased(callerLane(tx, checkSchemaName(options.schema ?? 'taskq')), id)) === 'written';
}

/** A row to be, and where it stands in the list, for messages: empty or `[3]`. */
interface NewRow {
  readonly task: NewTask | NewUniqueTask;
  readonly subject: string;
}

/** Inserts in as few statements as the sizes allow, and answers in the order of `rows`. */
async function insertInBatches(lane: CallerLane, rows: readonly NewRow[]): Promise<Enqueued[]> {
  const enqueued: Enqueued[] = [];
  for (const batch of batches(inOrderOfKeys(rows))) {
    const answers = await insert(
      lane,
      batch.map(({ row }) => row.task),
    );
    for (const [place, { row, index }] of batch.entries()) {
      enqueued[index] = answers[place] as Enqueued;
      refuseConflict(row, enqueued[index]);
    }
  }
  return enqueued;
}

async function insert(lane: CallerLane, tasks: readonly (NewTask | NewUniqueTask)[]): Promise<Enqueued[]> {
  // All of one enqueue are alike: its options say whether they are unique.
  if (tasks.every(isUnique)) return enqueueUnique(lane, tasks);
  return (await insertTasks(lane, tasks)).map((id) => ({ id, status: 'enqueued' }));
}

function isUnique(task: NewTask | NewUniqueTask): task is NewUniqueTask {
  return 'unique' in task;
}

/** Keys are locked in one order in every list, or two lists could wait for each other. Equal ones keep theirs. */
function inOrderOfKeys(rows: readonly NewRow[]): { row: NewRow; index: number }[] {
  const indexed = rows.map((row, index) => ({ row, index }));
  return indexed.sort(({ row: { task: left } }, { row: { task: right } }) =>
    isUnique(left) && isUnique(right) ? orderOfKeys(left.key, right.key) : 0,
  );
}

function* batches(rows: readonly { row: NewRow; index: number }[]): Generator<typeof rows> {
  let first = 0;
  let bytes = 0;
  for (const [place, { row }] of rows.entries()) {
    const rowBytes = insertBytes(row.task);
    const isFull = place - first >= ENQUEUE_BATCH_ROWS || bytes + rowBytes > ENQUEUE_BATCH_BYTES;
    if (isFull && place > first) {
      yield rows.slice(first, place);
      first = place;
      bytes = 0;
    }
    bytes += rowBytes;
  }
  if (first < rows.length) yield rows.slice(first);
}

function refuseConflict({ task, subject }: NewRow, { id, status }: Enqueued): void {
  if (status !== 'existing' || !isUnique(task) || task.unique.onConflict !== 'error') return;
  throw new TaskqError('TASK_EXISTS', `${subject}: task ${id} stands in the way of another with its key`);
}

interface Settings {
  readonly runAtMs: number | undefined;
  readonly delayMs: number | undefined;
  readonly queue: string | undefined;
  readonly maxAttempts: number | undefined;
  readonly headers: Readonly<Record<string, string>>;
  /** Undefined for the definition's. */
  readonly unique: Uniqueness | false | undefined;
}

/** Validates a payload and makes the row it becomes. `index` is empty or `[3]`, for the message. */
function taskRow(task: RegisteredTask, given: Settings, bytesMax: number) {
  const { definition, revision } = task;
  const unique = given.unique ?? definition.unique ?? false;
  return async (payload: unknown, index: string): Promise<NewRow> => {
    const subject = `${definition.type}${index}`;
    await checkPayload(definition.payload, payload, subject);
    const payloadText = encodePayload(payload, subject);
    const bytes = payloadBytes(payloadText);
    if (bytes > bytesMax) {
      throw new TaskqError(
        'PAYLOAD_TOO_LARGE',
        `${subject}: the payload takes ${bytes} bytes, the limit is ${bytesMax}; store the data elsewhere and enqueue a reference, or raise maxPayloadBytes`,
      );
    }
    const task: NewTask = {
      queue: given.queue ?? definition.queue,
      type: definition.type,
      payloadText,
      payloadRevision: revision,
      runAtMs: given.runAtMs,
      delayMs: given.delayMs,
      maxAttempts: given.maxAttempts ?? definition.maxAttempts,
      headers: given.headers,
    };
    if (unique === false) return { task, subject };
    return { task: { ...task, unique, key: uniqueKeyOf(unique, payloadText, subject) }, subject };
  };
}

function registered(tasks: TaskSet, type: string): RegisteredTask {
  const task = Object.hasOwn(tasks, type) ? tasks[type] : undefined;
  if (task === undefined) {
    throw new TaskqError(
      'UNKNOWN_TASK_TYPE',
      `no task type '${type}' is defined; run \`taskq codegen\` after adding one`,
    );
  }
  return task;
}

const OPTION_NAMES = new Set(['runAt', 'delay', 'queue', 'maxAttempts', 'headers', 'unique']);

function settings(options: EnqueueOptions<string> = {}): Settings {
  for (const name of Object.keys(options)) {
    if (!OPTION_NAMES.has(name)) {
      throw new TaskqError(
        'OPTION_INVALID',
        `enqueue option '${name}': no such option; there are ${[...OPTION_NAMES].join(', ')}`,
      );
    }
  }
  if (options.runAt !== undefined && options.delay !== undefined) {
    throw new TaskqError('OPTION_INVALID', 'enqueue options runAt and delay: give one of them, not both');
  }
  return asOptionError(() => ({
    runAtMs: options.runAt === undefined ? undefined : instantMs(options.runAt),
    delayMs: options.delay === undefined ? undefined : durationMs(options.delay, 'enqueue option delay'),
    queue: options.queue === undefined ? undefined : checkName(options.queue, 'enqueue option queue'),
    maxAttempts:
      options.maxAttempts === undefined
        ? undefined
        : checkMaxAttempts(options.maxAttempts, 'enqueue options'),
    headers: headers(options.headers ?? {}),
    unique: options.unique === undefined ? undefined : uniqueness(options.unique),
  }));
}

function uniqueness(unique: UniqueOptions | false): Uniqueness | false {
  return unique === false ? false : checkUnique(unique, 'enqueue option unique');
}

/** With an offset, so that it means the same on every machine. */
const ISO_WITH_OFFSET = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:\d{2})$/;

function instantMs(runAt: Date | string): number {
  if (typeof runAt === 'string' && !ISO_WITH_OFFSET.test(runAt)) {
    throw new TaskqError(
      'OPTION_INVALID',
      `enqueue option runAt: expected ISO text with an offset such as '2027-01-31T09:00:00Z', received '${runAt}'`,
    );
  }
  const ms = typeof runAt === 'string' || runAt instanceof Date ? new Date(runAt).getTime() : Number.NaN;
  // PostgreSQL's timestamps reach further than a Date, but nothing sensible lies beyond.
  if (Number.isNaN(ms) || ms < 0) {
    throw new TaskqError(
      'OPTION_INVALID',
      `enqueue option runAt: expected a valid Date after 1970, received ${String(runAt)}`,
    );
  }
  return ms;
}

function headers(given: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  for (const [name, value] of Object.entries(given)) {
    const text = `${name}${value}`;
    if (typeof value !== 'string' || text.includes('\0') || !text.isWellFormed()) {
      throw new TaskqError(
        'OPTION_INVALID',
        `enqueue option headers: '${name}' must be a string without NUL and lone surrogates`,
      );
    }
  }
  return given;
}

function checkBytesMax(bytes: number): number {
  if (Number.isInteger(bytes) && bytes >= 1 && bytes <= PAYLOAD_BYTES_MAX) return bytes;
  throw new TaskqError(
    'CONFIG_INVALID',
    `maxPayloadBytes: expected a whole number from 1 to ${PAYLOAD_BYTES_MAX}, received ${bytes}`,
  );
}

/** The checks are shared with definitions; here the fault lies with an option. */
function asOptionError<T>(check: () => T): T {
  try {
    return check();
  } catch (error) {
    if (error instanceof TaskqError && error.code !== 'OPTION_INVALID') {
      throw new TaskqError('OPTION_INVALID', error.message, { cause: error });
    }
    throw error;
  }
}
