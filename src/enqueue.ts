import type { Kysely } from 'kysely';
import type { z } from 'zod';
import { aroundEnqueue, type EnqueueCall, type EnqueueMiddleware } from './domain/enqueue-middleware.ts';
import { type EnqueueOptions, type EnqueueSettings, enqueueSettings } from './domain/enqueue-options.ts';
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
import { errorWithoutSecrets } from './domain/secrets.ts';
import type { TaskDefinition, Wake } from './domain/task-definition.ts';
import type { RegisteredTask, TaskSet } from './domain/task-set.ts';
import { describeThrown } from './domain/thrown.ts';
import { orderOfKeys, type PayloadPath, uniqueKeyOf } from './domain/uniqueness.ts';
import { insertBytes, insertTasks, type NewTask } from './statements/enqueue.ts';
import { enqueueUnique, type NewUniqueTask } from './statements/enqueue-unique.ts';
import { type CallerLane, callerLane, type QueryExecutor } from './statements/lanes.ts';
import { dequeueUnleased as deleteUnleased } from './statements/settle.ts';
import { traceEnqueue } from './tracing/trace-enqueue.ts';
import { isTracing } from './tracing/tracer.ts';

export type {
  EnqueueAdditions,
  EnqueueCall,
  EnqueueEnd,
  EnqueueMiddleware,
} from './domain/enqueue-middleware.ts';
export type { EnqueueOptions } from './domain/enqueue-options.ts';

/**
 * The caller's Kysely or Transaction, over whatever tables and with whatever plugins;
 * or what `queryExecutor` makes of the transaction of another library.
 */
// biome-ignore lint/suspicious/noExplicitAny: the caller's tables are its own.
export type CallerTransaction = Kysely<any> | QueryExecutor;

/** What an enqueue answers. */
export interface Enqueued {
  /** Of the new task, or of the one that was in the way. */
  readonly id: TaskId;
  /** `existing`: nothing was written. `replaced`: the waiting task has the new payload. Never but with `unique`. */
  readonly status: 'enqueued' | 'existing' | 'replaced';
}

/** What the enqueue of a stream answers: how many of its payloads became what. See `Enqueued`. */
export interface EnqueuedCounts {
  readonly enqueued: number;
  readonly existing: number;
  readonly replaced: number;
}

export interface EnqueuerOptions {
  /** The schema of the queue's tables. Default `'taskq'`. */
  readonly schema?: string;
  /** The longest payload, in bytes of its stored JSON. Default 1 MiB. */
  readonly maxPayloadBytes?: number;
  /** Around every enqueue, outermost first. */
  readonly middleware?: readonly EnqueueMiddleware[];
  /**
   * Told what a middleware threw, or that it gave headers that are none; the enqueue goes on without that.
   * Default: a process warning with the code `TASKQ_ENQUEUE_MIDDLEWARE`.
   */
  readonly onMiddlewareError?: (error: unknown) => void;
  /**
   * Default true: while an OpenTelemetry SDK is registered, every enqueue is a span outside of the middleware, and its
   * context travels with the task. Without an SDK it costs nothing.
   */
  readonly tracing?: boolean;
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

  /**
   * Enqueues what an iterable yields, which may be more than fits into memory: it is read, validated, inserted and let
   * go batch by batch (1,000 tasks or 8 MiB), and is closed when the call fails. Needs a transaction, and any error
   * comes after earlier batches have been inserted: let it roll the transaction back.
   * With `unique` the keys are locked in their order within each batch only, so two streams with common keys, or a
   * stream and a list, can deadlock (40P01): yield the payloads in one order, or retry.
   * @throws TaskqError as `enqueue` does; the message names the index. `OPTION_INVALID` for a Kysely that is no
   *   transaction. What the iterable throws passes through unchanged.
   */
  enqueueMany<Type extends TypeIn<Tasks>>(
    tx: CallerTransaction,
    type: Type,
    payloads: Iterable<PayloadIn<Tasks, Type>> | AsyncIterable<PayloadIn<Tasks, Type>>,
    options?: EnqueueOptions<PayloadPath<PayloadIn<Tasks, Type>>>,
  ): Promise<EnqueuedCounts>;
}

/**
 * The enqueue functions of a set of task types; `generated/tasks.ts` calls this.
 * @throws TaskqError `CONFIG_INVALID` for a payload limit that is no number of bytes within jsonb's own, or a
 *   middleware that is no function
 */
export function createEnqueuer<Tasks extends TaskSet>(
  tasks: Tasks,
  options: EnqueuerOptions = {},
): Enqueuer<Tasks> {
  const schema = checkSchemaName(options.schema ?? 'taskq');
  const bytesMax = checkBytesMax(options.maxPayloadBytes ?? PAYLOAD_BYTES_MAX_DEFAULT);
  const onError = contained(options.onMiddlewareError ?? warn);
  const untraced = aroundEnqueue(options.middleware ?? [], onError);
  const traced = aroundEnqueue([traceEnqueue(), ...(options.middleware ?? [])], onError);
  const { tracing = true } = options;
  // Looked up each time: an application may make its enqueuer before it registers the SDK.
  const aroundThis = () => (tracing && isTracing() ? traced : untraced);

  return {
    async enqueue(tx, type, payload, enqueueOptions) {
      const task = registered(tasks, type);
      const settings = enqueueSettings(task.definition, enqueueOptions);
      const insertOne = async (given: EnqueueSettings) => {
        const rows = [await taskRow(task, given, bytesMax)(payload, '')];
        const [enqueued] = await insertInBatches(callerLane(tx, schema), rows, given.wake);
        return enqueued as Enqueued;
      };
      const around = aroundThis();
      if (around === undefined) return insertOne(settings);
      const insertWith = (headers: EnqueueCall['headers']) => insertOne({ ...settings, headers });
      return around(callOf(type, settings, 1), insertWith, (enqueued) => [enqueued]);
    },
    async enqueueMany(
      tx: CallerTransaction,
      type: TypeIn<Tasks>,
      payloads: unknown,
      enqueueOptions?: EnqueueOptions<string>,
    ) {
      const task = registered(tasks, type);
      const settings = enqueueSettings(task.definition, enqueueOptions);
      const given = payloadsOf(tx, type, payloads);
      const count = Array.isArray(given) ? given.length : undefined;
      const insertAll = async (within: EnqueueSettings) => {
        const row = taskRow(task, within, bytesMax);
        const lane = callerLane(tx, schema);
        if (!Array.isArray(given)) return insertStream(lane, given, row, within.wake);
        const rows: NewRow[] = [];
        for (const [index, payload] of given.entries()) rows.push(await row(payload, `[${index}]`));
        return insertInBatches(lane, rows, within.wake);
      };
      const around = aroundThis();
      if (around === undefined) return insertAll(settings);
      const insertWith = (headers: EnqueueCall['headers']) => insertAll({ ...settings, headers });
      return around(callOf(type, settings, count), insertWith, (answer) =>
        Array.isArray(answer) ? answer : undefined,
      );
    },
  } as Enqueuer<Tasks>;
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

/**
 * Checks all that an enqueue checks before its statement, for a task that is enqueued later, again and again.
 * Rejects as `enqueue` does.
 */
export async function checkEnqueue(
  tasks: TaskSet,
  { type, payload, options }: { type: string; payload: unknown; options: EnqueueOptions<string> },
  { maxPayloadBytes = PAYLOAD_BYTES_MAX_DEFAULT }: Pick<EnqueuerOptions, 'maxPayloadBytes'> = {},
): Promise<void> {
  const task = registered(tasks, type);
  const row = taskRow(task, enqueueSettings(task.definition, options), checkBytesMax(maxPayloadBytes));
  await row(payload, '');
}

/** A row to be, and where it stands in the list, for messages: empty or `[3]`. */
interface NewRow {
  readonly task: NewTask | NewUniqueTask;
  readonly subject: string;
}

/** Inserts in as few statements as the sizes allow, and answers in the order of `rows`. */
async function insertInBatches(lane: CallerLane, rows: readonly NewRow[], wake: Wake): Promise<Enqueued[]> {
  const enqueued: Enqueued[] = [];
  for (const batch of batches(inOrderOfKeys(rows))) {
    const answers = await insert(
      lane,
      batch.map(({ row }) => row.task),
      wake,
    );
    for (const [place, { row, index }] of batch.entries()) {
      enqueued[index] = answers[place] as Enqueued;
      refuseConflict(row, enqueued[index]);
    }
  }
  return enqueued;
}

/** Holds no more than one batch, and a payload that did not fit into it. */
async function insertStream(
  lane: CallerLane,
  payloads: Stream,
  row: MakeRow,
  wake: Wake,
): Promise<EnqueuedCounts> {
  const counts = { enqueued: 0, existing: 0, replaced: 0 };
  let batch: NewRow[] = [];
  let bytes = 0;
  const insertBatch = async () => {
    const rows = batch;
    batch = [];
    bytes = 0;
    for (const { status } of await insertInBatches(lane, rows, wake)) counts[status] += 1;
  };
  let index = 0;
  // Closes the iterator when anything in here throws.
  for await (const payload of payloads) {
    const next = await row(payload, `[${index}]`);
    index += 1;
    const nextBytes = insertBytes(next.task);
    if (batch.length > 0 && bytes + nextBytes > ENQUEUE_BATCH_BYTES) await insertBatch();
    batch.push(next);
    bytes += nextBytes;
    if (batch.length === ENQUEUE_BATCH_ROWS) await insertBatch();
  }
  if (batch.length > 0) await insertBatch();
  return counts;
}

async function insert(
  lane: CallerLane,
  tasks: readonly (NewTask | NewUniqueTask)[],
  wake: Wake,
): Promise<Enqueued[]> {
  // All of one enqueue are alike: its options say whether they are unique.
  if (tasks.every(isUnique)) return enqueueUnique(lane, tasks, wake);
  return (await insertTasks(lane, tasks, wake)).map((id) => ({ id, status: 'enqueued' }));
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

type MakeRow = (payload: unknown, index: string) => Promise<NewRow>;

/** Validates a payload and makes the row it becomes. `index` is empty or `[3]`, for the message. */
function taskRow(task: RegisteredTask, settings: EnqueueSettings, bytesMax: number): MakeRow {
  const { definition, revision } = task;
  const { unique, queue, runAtMs, delayMs, maxAttempts, ceilingMs, retentionMs, headers } = settings;
  return async (payload, index) => {
    const subject = `${definition.type}${index}`;
    await checkPayload(definition.payload, payload, subject);
    const payloadText = encoded(definition, payload, subject);
    const bytes = payloadBytes(payloadText);
    if (bytes > bytesMax) {
      throw new TaskqError(
        'PAYLOAD_TOO_LARGE',
        `${subject}: the payload takes ${bytes} bytes, the limit is ${bytesMax}; store the data elsewhere and enqueue a reference, or raise maxPayloadBytes`,
      );
    }
    const task: NewTask = {
      queue,
      type: definition.type,
      payloadText,
      payloadRevision: revision,
      runAtMs,
      delayMs,
      maxAttempts,
      ceilingMs,
      retentionMs,
      headers,
    };
    if (unique === false) return { task, subject };
    return { task: { ...task, unique, key: uniqueKeyOf(unique, payloadText, subject) }, subject };
  };
}

// The path of a value that cannot be stored may lead through names within a secret field.
function encoded({ payload: schema }: TaskDefinition, payload: unknown, subject: string): string {
  try {
    return encodePayload(payload, subject);
  } catch (error) {
    throw errorWithoutSecrets(schema, payload, error);
  }
}

type Stream = Iterable<unknown> | AsyncIterable<unknown>;

/** @throws TaskqError `OPTION_INVALID` */
function payloadsOf(tx: CallerTransaction, type: string, payloads: unknown): readonly unknown[] | Stream {
  if (Array.isArray(payloads)) return payloads;
  if (!isStream(payloads)) {
    throw new TaskqError(
      'OPTION_INVALID',
      `enqueueMany of ${type}: expected an array, an iterable or an async iterable of payloads`,
    );
  }
  // Of what another driver calls a transaction nothing is known.
  if ('isTransaction' in tx && tx.isTransaction === false) {
    throw new TaskqError(
      'OPTION_INVALID',
      `enqueueMany of ${type}: a stream is inserted batch by batch and would be written in part if it failed; give it a transaction`,
    );
  }
  return payloads;
}

// Text is iterable too, but its letters are nobody's payloads.
function isStream(payloads: unknown): payloads is Stream {
  return (
    typeof payloads === 'object' &&
    payloads !== null &&
    (Symbol.iterator in payloads || Symbol.asyncIterator in payloads)
  );
}

function callOf(type: string, { queue, headers }: EnqueueSettings, count: number | undefined): EnqueueCall {
  return { type, queue, count, headers };
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

function checkBytesMax(bytes: number): number {
  if (Number.isInteger(bytes) && bytes >= 1 && bytes <= PAYLOAD_BYTES_MAX) return bytes;
  throw new TaskqError(
    'CONFIG_INVALID',
    `maxPayloadBytes: expected a whole number from 1 to ${PAYLOAD_BYTES_MAX}, received ${bytes}`,
  );
}

/** An error handler that throws is no reason to lose an enqueue either. */
function contained(onError: (error: unknown) => void): (error: unknown) => void {
  return (error) => {
    try {
      onError(error);
    } catch (second) {
      warn(second);
    }
  };
}

function warn(error: unknown): void {
  const { message, stack = '' } = describeThrown(error);
  process.emitWarning(`an enqueue middleware failed: ${message}`, {
    type: 'TaskqWarning',
    code: 'TASKQ_ENQUEUE_MIDDLEWARE',
    detail: stack,
  });
}
