import type { TaskSet } from '../domain/task-set.ts';
import type { AppClock } from '../domain/time.ts';
import type { ConnectionSettings } from '../postgres/lanes.ts';
import type { CronEntries } from '../scheduler/entries.ts';
import type { ReadLane, WriteLane } from '../statements/lanes.ts';
import { listTypes } from '../statements/task-types.ts';

/**
 * `problem`: tasks are lost, late or not run, or will be. `warning`: they may be. `unknown`: it could not be seen,
 * for want of a right, an answer in time, or something to compare with.
 */
export const CHECK_STATUSES = ['problem', 'warning', 'unknown', 'ok'] as const;
export type CheckStatus = (typeof CHECK_STATUSES)[number];

export const CHECK_GROUPS = ['connections', 'schema', 'vacuum', 'server', 'tasks', 'upkeep'] as const;
export type CheckGroup = (typeof CHECK_GROUPS)[number];

/** What one check answers. */
export interface Verdict {
  readonly status: CheckStatus;
  /** One sentence with the numbers. May hold text from rows, such as the name of a queue. */
  readonly found: string;
  /** What to do, the exact command or SQL where there is one; empty for nothing. */
  readonly remedies: readonly string[];
}

/** A verdict with the check it came from. */
export interface Finding extends Verdict {
  /** Stable: dashboards and scripts may name it. */
  readonly id: string;
  readonly group: CheckGroup;
}

export interface Check {
  readonly id: string;
  readonly group: CheckGroup;
  /** For the documentation: what is looked at, and when it is a warning or a problem. */
  readonly describes: string;
  examine(examination: Examination): Promise<Verdict>;
}

export interface DoctorOptions {
  /** The primary, as the workers reach it. */
  readonly database: ConnectionSettings;
  readonly readDatabase?: ConnectionSettings;
  /** `database` by default, as for a worker. */
  readonly listenDatabase?: ConnectionSettings;
  /** Default `'taskq'`. */
  readonly schema?: string;
  /** Whether the workers prepare statements. Default true. */
  readonly preparedStatements?: boolean;
  /** What the workers register. By default, what they have said at their start. */
  readonly tasks?: TaskSet;
  readonly cron?: CronEntries;
  /** Of the workers, in milliseconds. Default 30 s. */
  readonly leaseMarginMs?: number;
  /** Of dead letters, in milliseconds. Default 7 days. */
  readonly retentionMs?: number;
  /** From what age on a transaction is a warning, in milliseconds; a problem at twelve times. Default 5 min. */
  readonly oldTransactionMs?: number;
  /** Only these checks, by id. Default: all of them. */
  readonly checks?: readonly string[];
  /** What a check may take, in milliseconds; beyond it is unknown. Default 5 s. */
  readonly checkMs?: number;
  readonly clock?: AppClock;
}

/** What the checks work with. Everything they read, they read in transactions that cannot write. */
export interface Examination {
  readonly options: DoctorOptions;
  readonly schema: string;
  readonly leaseMarginMs: number;
  readonly retentionMs: number;
  readonly oldTransactionMs: number;
  readonly clock: AppClock;
  /** For what only the primary knows: statistics, settings, locks. */
  onPrimary<Answer>(look: (lane: WriteLane) => Promise<Answer>): Promise<Answer>;
  /** For rows; the primary when there is no replica. */
  onReadLane<Answer>(look: (lane: ReadLane) => Promise<Answer>): Promise<Answer>;
}

export const ok = (found: string): Verdict => ({ status: 'ok', found, remedies: [] });

export const verdict = (status: CheckStatus, found: string, ...remedies: readonly string[]): Verdict => ({
  status,
  found,
  remedies,
});

/** The worse of two: a problem before a warning, a warning before what is not known. */
export function worse(left: CheckStatus, right: CheckStatus): CheckStatus {
  return CHECK_STATUSES.indexOf(left) <= CHECK_STATUSES.indexOf(right) ? left : right;
}

/** What is known of a task type. */
export interface KnownType {
  /** The newest of its payload. */
  readonly revision: number;
  readonly ceilingMs: number;
}

/** By name: of the code given, else as workers have registered them; undefined when neither knows any. */
export async function knownTypes({
  options: { tasks },
  onReadLane,
}: Examination): Promise<Readonly<Record<string, KnownType>> | undefined> {
  if (tasks !== undefined) {
    const given = Object.entries(tasks).map(([type, { revision, definition }]): [string, KnownType] => [
      type,
      { revision, ceilingMs: definition.ceilingMs },
    ]);
    return Object.fromEntries(given);
  }
  // Sorted by revision: the newest of a type is the last.
  const registered = await onReadLane(listTypes);
  return registered.length === 0 ? undefined : Object.fromEntries(registered.map((of) => [of.type, of]));
}
