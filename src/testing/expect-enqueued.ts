import { inspect, isDeepStrictEqual } from 'node:util';
import { TaskqError } from '../domain/errors.ts';
import { decodePayload, encodePayload } from '../domain/payload-codec.ts';
import type { PayloadInput, TaskDefinition } from '../domain/task-definition.ts';
import type { CallerTransaction } from '../enqueue.ts';
import { differences } from './differences.ts';
import { type EnqueuedInOptions, type EnqueuedTask, enqueuedIn, scopeOf } from './enqueued.ts';

export interface ExpectEnqueuedOptions extends EnqueuedInOptions {
  /** Exactly so many; 0 for none. Default: one or more. */
  readonly times?: number;
}

/** What is said about the payload; a function is a predicate, anything else the payload itself. */
type Expected<Payload> = Payload | ((payload: Payload) => boolean);

/**
 * Asserts that a task of the type was enqueued in this transaction (`enqueuedIn` says what counts), with this payload
 * exactly, with one that the predicate answers true for, or with any when neither is given. `type` is a name, or the
 * definition, which types the payload. `times` is a number or options with one.
 * @returns the tasks that match
 * @throws Error that lists what was enqueued instead, and where each payload of the type differs
 */
export function expectEnqueued<D extends TaskDefinition>(
  tx: CallerTransaction,
  type: D,
  expected?: Expected<PayloadInput<D>>,
  times?: number | ExpectEnqueuedOptions,
): Promise<EnqueuedTask[]>;
export function expectEnqueued(
  tx: CallerTransaction,
  type: string,
  // biome-ignore lint/suspicious/noExplicitAny: by its name alone, the type's payload is not known here.
  expected?: Expected<any>,
  times?: number | ExpectEnqueuedOptions,
): Promise<EnqueuedTask[]>;
export async function expectEnqueued(
  tx: CallerTransaction,
  typeOrDefinition: string | TaskDefinition,
  expected?: Expected<unknown>,
  timesOrOptions: number | ExpectEnqueuedOptions = {},
): Promise<EnqueuedTask[]> {
  const type = typeof typeOrDefinition === 'string' ? typeOrDefinition : typeOrDefinition.type;
  const options = typeof timesOrOptions === 'number' ? { times: timesOrOptions } : timesOrOptions;
  const times = checkTimes(options.times);
  const expectation = expectationOf(type, expected);
  const tasks = await enqueuedIn(tx, options);
  const matching = tasks.filter((task) => task.type === type && expectation.matches(task.payload));
  if (times === undefined ? matching.length > 0 : matching.length === times) return matching;
  const where = scopeOf(tx, options) === 'transaction' ? 'in this transaction' : 'in the queue';
  throw new Error(failureMessage({ type, times, expectation, tasks, matching, where }));
}

interface Expectation {
  matches(payload: unknown): boolean;
  /** As the message says it: ` with the payload { … }`. */
  readonly words: string;
  /** Where a payload differs; empty for a predicate. */
  differences(payload: unknown): string[];
}

function expectationOf(type: string, expected: unknown): Expectation {
  const none = () => [];
  if (expected === undefined) return { matches: () => true, words: '', differences: none };
  if (typeof expected === 'function') {
    const matches = (payload: unknown) => Boolean((expected as (payload: unknown) => unknown)(payload));
    return { matches, words: ' for whose payload the predicate answers true', differences: none };
  }
  // Through the codec, as the enqueued one went: an undefined property is none.
  const wanted = decodePayload(encodePayload(expected, type));
  return {
    matches: (payload) => isDeepStrictEqual(payload, wanted),
    words: ` with the payload ${shown(wanted)}`,
    differences: (payload) => differences(wanted, payload),
  };
}

/** Tasks that a message lists; the others are counted. */
const TASKS_LISTED_MAX = 20;

interface Failure {
  readonly type: string;
  readonly times: number | undefined;
  readonly expectation: Expectation;
  readonly tasks: readonly EnqueuedTask[];
  readonly matching: readonly EnqueuedTask[];
  readonly where: string;
}

function failureMessage({ type, times, expectation, tasks, matching, where }: Failure): string {
  const found = matching.length === 0 ? 'none' : String(matching.length);
  const wanted = times === undefined ? 'a task' : times === 1 ? '1 task' : `${times} tasks`;
  const head = `expected ${wanted} of type '${type}'${expectation.words}, found ${found} ${where}`;
  if (tasks.length === 0) return `${head}: nothing was enqueued`;
  const matched = new Set(matching);
  // Those of the type first: one of them is most likely the one that was meant.
  const sorted = [
    ...tasks.filter((task) => task.type === type),
    ...tasks.filter((task) => task.type !== type),
  ];
  const lines = sorted
    .slice(0, TASKS_LISTED_MAX)
    .flatMap((task) => listed(task, matched.has(task), task.type === type ? expectation : undefined));
  const more = tasks.length - TASKS_LISTED_MAX;
  if (more > 0) lines.push(`  … and ${more} more`);
  return `${head}. Enqueued were:\n${lines.join('\n')}`;
}

function listed(task: EnqueuedTask, matches: boolean, expectation: Expectation | undefined): string[] {
  const mark = matches ? '✓' : ' ';
  const line = `${mark} #${task.id} ${task.type} ${shown(task.payload)}`;
  if (matches || expectation === undefined) return [line];
  return [line, ...expectation.differences(task.payload).map((difference) => `      ${difference}`)];
}

function shown(payload: unknown): string {
  return inspect(payload, {
    depth: 4,
    breakLength: Number.POSITIVE_INFINITY,
    maxStringLength: 200,
    maxArrayLength: 20,
  });
}

function checkTimes(times: number | undefined): number | undefined {
  if (times === undefined || (Number.isInteger(times) && times >= 0)) return times;
  throw new TaskqError(
    'OPTION_INVALID',
    `expectEnqueued: times must be a whole number from 0, received ${times}`,
  );
}
