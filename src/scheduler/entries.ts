import { inspect } from 'node:util';
import type { z } from 'zod';
import { type EnqueueSettings, enqueueSettings } from '../domain/enqueue-options.ts';
import { TaskqError } from '../domain/errors.ts';
import { CRON_MISSED_ALL_MAX } from '../domain/limits.ts';
import { checkName } from '../domain/task-definition.ts';
import type { RegisteredTask, TaskSet } from '../domain/task-set.ts';
import type { PayloadPath } from '../domain/uniqueness.ts';
import { checkEnqueue, type EnqueueOptions, type EnqueuerOptions } from '../enqueue.ts';
import { parseSchedule, type Schedule } from './schedule.ts';

/** By a registered symbol, not by class: a list may come from another copy of this package. */
const CRON = Symbol.for('taskq.CronEntries');

/**
 * What becomes of ticks that no replica took within a minute: nothing (`skip`), the newest one is taken (`once`),
 * or the newest `all` of them, oldest first; 1 to 1,000.
 */
export type MissedPolicy = 'skip' | 'once' | { readonly all: number };

/** What an entry says, whatever its task. The rest of an enqueue's options are the entry's, too. */
interface CronEntryFields<Path extends string> extends Omit<EnqueueOptions<Path>, 'runAt' | 'delay'> {
  /** What its ticks are kept under; unique in the list. Another name is another entry. Default: the task type. */
  readonly name?: string;
  /** `'@every 5m'`, counted from the epoch, or cron text, `'0 3 * * *'`. */
  readonly schedule: string;
  /** Of cron text, an IANA name such as `'Europe/Berlin'`. Default UTC. */
  readonly timeZone?: string;
  /**
   * `'skip'`: a tick enqueues nothing while a task of this entry waits or runs; a dead letter is not in its way.
   * The entry then has a unique key of its own. Default `'allow'`.
   */
  readonly overlap?: 'allow' | 'skip';
  /** Default `'skip'`. */
  readonly missed?: MissedPolicy;
}

/** Left out, the payload is `{}`; where that does not fit it must be given. */
type PayloadField<Payload> =
  Record<never, never> extends Payload ? { readonly payload?: Payload } : { readonly payload: Payload };

type EntryOf<Type extends string, Payload> = CronEntryFields<PayloadPath<Payload>> & {
  /** The task type that each tick enqueues. */
  readonly task: Type;
} & PayloadField<Payload>;

/** One entry of the cron list: what is enqueued, and when. */
export type CronEntry<Tasks extends TaskSet = TaskSet> = {
  [Type in keyof Tasks & string]: EntryOf<Type, z.input<Tasks[Type]['definition']['payload']>>;
}[keyof Tasks & string];

/** An entry after its checks. */
export interface CheckedEntry {
  readonly name: string;
  readonly schedule: Schedule;
  readonly timeZone: string | undefined;
  readonly task: string;
  readonly payload: unknown;
  readonly queue: string;
  readonly options: EnqueueOptions<string>;
  readonly missed: MissedPolicy;
}

/** The cron list, checked: what `createApp` takes. */
export interface CronEntries {
  readonly [CRON]: true;
  readonly tasks: TaskSet;
  readonly entries: readonly CheckedEntry[];
  readonly enqueuerOptions: Omit<EnqueuerOptions, 'schema'>;
}

/**
 * Checks a cron list; `defineCron` of the generated tasks calls this. Payloads are checked by `app.start`, since a
 * schema may be asynchronous.
 * @param options for the enqueues of the list: middleware, the limit of a payload
 * @throws TaskqError `DEFINITION_INVALID` naming the entry and the field
 */
export function createCron<Tasks extends TaskSet>(
  tasks: Tasks,
  entries: readonly CronEntry<Tasks>[],
  options: Omit<EnqueuerOptions, 'schema'> = {},
): CronEntries {
  if (!Array.isArray(entries)) throw invalid('cron', 'expected a list of entries');
  const checked = (entries as readonly unknown[]).map((entry, index) => checkEntry(tasks, entry, index));
  const names = new Set<string>();
  for (const { name } of checked) {
    // Two entries with the same name would take each other's ticks.
    if (names.has(name)) throw invalid(of(name), 'two entries have this name; give one another `name`');
    names.add(name);
  }
  return Object.freeze({
    [CRON]: true as const,
    tasks,
    entries: Object.freeze(checked),
    enqueuerOptions: options,
  });
}

export function isCronEntries(value: unknown): value is CronEntries {
  return typeof value === 'object' && value !== null && CRON in value;
}

/**
 * Checks the payload of every entry as its enqueue will.
 * @throws TaskqError `PAYLOAD_INVALID` and what else an enqueue throws before its statement, naming the entry
 */
export async function checkCronPayloads({ tasks, entries, enqueuerOptions }: CronEntries): Promise<void> {
  for (const { name, task, payload, options } of entries) {
    try {
      await checkEnqueue(tasks, { type: task, payload, options }, enqueuerOptions);
    } catch (error) {
      if (!(error instanceof TaskqError)) throw error;
      throw new TaskqError(error.code, `${of(name)}: ${error.message}`, { cause: error });
    }
  }
}

const OWN_FIELDS = ['name', 'schedule', 'timeZone', 'task', 'payload', 'overlap', 'missed'];
const ENQUEUE_FIELDS = ['queue', 'maxAttempts', 'timeout', 'retention', 'wake', 'headers', 'unique'];
const FIELDS = [...OWN_FIELDS, ...ENQUEUE_FIELDS];

function checkEntry(tasks: TaskSet, given: unknown, index: number): CheckedEntry {
  if (typeof given !== 'object' || given === null) {
    throw invalid(`cron entry ${index + 1}`, `expected { schedule, task, … }, received ${String(given)}`);
  }
  const { name = undefined, ...fields } = given as Record<string, unknown>;
  const { task, schedule, timeZone, overlap = 'allow', missed = 'skip', payload = {} } = fields;
  const label = name ?? task ?? index + 1;
  const entry = of(checkName(name ?? task, `${of(label)}: ${name === undefined ? 'task' : 'name'}`));
  const unknown = Object.keys(fields).find((field) => !FIELDS.includes(field));
  if (unknown !== undefined) {
    throw invalid(entry, `there is no field '${unknown}'; there are ${FIELDS.join(', ')}`);
  }
  const registered = registeredTask(tasks, task, entry);
  if (overlap !== 'allow' && overlap !== 'skip') {
    throw invalid(entry, `overlap: expected 'allow' or 'skip', received ${describe(overlap)}`);
  }
  const options = Object.fromEntries(
    ENQUEUE_FIELDS.flatMap((field) => (fields[field] === undefined ? [] : [[field, fields[field]]])),
  ) as EnqueueOptions<string>;
  const own = (name ?? task) as string;
  const settings = checkOptions(registered, options, entry);
  const unique = overlap === 'skip' ? ownKey(own, options, registered, entry) : {};
  return Object.freeze({
    name: own,
    schedule: parseSchedule(schedule as string, timeZone as string | undefined, entry),
    timeZone: timeZone as string | undefined,
    task: registered.definition.type,
    payload,
    queue: settings.queue,
    options: Object.freeze({ ...options, ...unique }),
    missed: checkMissed(missed, entry),
  });
}

function registeredTask(tasks: TaskSet, task: unknown, entry: string): RegisteredTask {
  const found = typeof task === 'string' && Object.hasOwn(tasks, task) ? tasks[task] : undefined;
  if (found !== undefined) return found;
  throw invalid(
    entry,
    `task: no task type ${describe(task)} is defined; run \`taskq codegen\` after adding one`,
  );
}

function checkOptions(
  { definition }: RegisteredTask,
  options: EnqueueOptions<string>,
  entry: string,
): EnqueueSettings {
  let settings: EnqueueSettings;
  try {
    settings = enqueueSettings(definition, options);
  } catch (error) {
    if (error instanceof TaskqError) throw invalid(entry, error.message, error);
    throw error;
  }
  // Thrown within the tick's transaction, the conflict would roll it back, and the tick would come again and again.
  if (settings.unique !== false && settings.unique.onConflict === 'error') {
    throw invalid(
      entry,
      "unique: a tick has nobody to throw at; give one with onConflict 'skip' or 'replace'",
    );
  }
  return settings;
}

/** What `overlap: 'skip'` is made of: the key of the entry, in the way while a task with it is live. */
function ownKey(
  name: string,
  options: EnqueueOptions<string>,
  { definition }: RegisteredTask,
  entry: string,
): Pick<EnqueueOptions<string>, 'unique'> {
  const { unique = definition.unique } = options;
  if (unique !== undefined && unique !== false) {
    const whose =
      options.unique === undefined
        ? `the type '${definition.type}' has a unique rule; give \`unique: false\` for this entry, or `
        : '';
    throw invalid(entry, `overlap: 'skip' has a unique key of its own: ${whose}leave one of the two out`);
  }
  return { unique: { key: `taskq cron entry ${name}`, while: 'live' } };
}

function checkMissed(missed: unknown, entry: string): MissedPolicy {
  if (missed === 'skip' || missed === 'once') return missed;
  if (typeof missed === 'object' && missed !== null && Object.keys(missed).join() === 'all') {
    const { all } = missed as { all: unknown };
    if (Number.isInteger(all) && (all as number) >= 1 && (all as number) <= CRON_MISSED_ALL_MAX) {
      return Object.freeze({ all: all as number });
    }
  }
  throw invalid(
    entry,
    `missed: expected 'skip', 'once' or { all: a whole number from 1 to ${CRON_MISSED_ALL_MAX} }, received ${describe(missed)}`,
  );
}

function of(name: unknown): string {
  return `cron entry ${describe(name)}`;
}

function describe(value: unknown): string {
  return typeof value === 'string' ? `'${value}'` : inspect(value);
}

function invalid(entry: string, problem: string, cause?: unknown): TaskqError {
  return new TaskqError('DEFINITION_INVALID', `${entry}: ${problem}`, { cause });
}
