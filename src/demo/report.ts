import type { TaskType } from '../../generated/tasks.ts';
import type { LoadedOrganisation } from './load-lockfile.ts';
import { seconds, table } from './story.ts';
import type { TaskHistory } from './task-events.ts';
import type { TrafficCounts } from './traffic.ts';
import type { Takeover } from './worker-crash.ts';

/** A row of the ledger. */
export interface LedgerEntry {
  readonly id: string;
  readonly type: TaskType;
  readonly committed: boolean;
}

/** What is compared: the ledger, the queue's table, and what the workers reported, all after the drain. */
export interface Evidence {
  readonly ledger: readonly LedgerEntry[];
  /** Rows that are still in the queue's table. */
  readonly remaining: readonly { readonly id: string; readonly dead: boolean }[];
  readonly histories: ReadonlyMap<string, TaskHistory>;
  /** Workers that were killed: their last reports may have died with them. */
  readonly killedWorkers: ReadonlySet<string>;
}

export interface TypeCounts {
  type: TaskType;
  /** In transactions that committed. */
  enqueued: number;
  /** Ran to their end: the row is gone, by the one fenced delete that a success writes. */
  succeeded: number;
  /** Of those enqueued, how many were claimed more than once. */
  retried: number;
  dead: number;
  /** Settlements that were refused because another worker held the task by then. */
  lost: number;
  /** Enqueued in transactions that rolled back. */
  rolledBack: number;
}

export interface Verdict {
  readonly types: readonly TypeCounts[];
  readonly invariant: {
    readonly holds: boolean;
    /** Each a sentence about one task; empty when it holds. */
    readonly problems: readonly string[];
    /** Successes known by the row alone: their worker was killed between its delete and its report. */
    readonly unreportedByKilledWorker: number;
  };
  /** Tasks that a killed worker held and another ran after it. */
  readonly takenOver: number;
}

/** The platform's own state after the drain, found against expected. */
export interface PlatformState {
  readonly edges: { readonly published: number; readonly declared: number; readonly differing: number };
  readonly exploreRowsOfDeletedStacks: number;
  readonly seats: { readonly audited: number; readonly live: number; readonly cap: number };
}

export interface DemoReport extends Verdict {
  readonly ok: boolean;
  readonly input: Omit<LoadedOrganisation, 'id'>;
  readonly requests: TrafficCounts;
  readonly takeover: Takeover;
  readonly platform: PlatformState;
  readonly tookMs: number;
}

/**
 * Judges the promise row by row: every task enqueued in a committed transaction ran to its end exactly once, and
 * none from a rolled-back one exists or ever ran.
 */
export function judge(evidence: Evidence): Verdict {
  const counts = new Map<TaskType, TypeCounts>();
  const problems: string[] = [];
  let unreportedByKilledWorker = 0;
  const remaining = new Map(evidence.remaining.map((row) => [row.id, row]));
  for (const { id, type, committed } of evidence.ledger) {
    const count = counts.get(type) ?? noCounts(type);
    counts.set(type, count);
    const history = evidence.histories.get(id);
    if (!committed) {
      count.rolledBack += 1;
      if (remaining.has(id)) problems.push(`${type} ${id} was rolled back and is in the table`);
      if (history !== undefined) problems.push(`${type} ${id} was rolled back and ran`);
      continue;
    }
    const end = endOf(remaining.get(id), history, evidence.killedWorkers);
    count.enqueued += 1;
    if (end.kind === 'succeeded') count.succeeded += 1;
    if (end.kind === 'dead') count.dead += 1;
    if (end.kind === 'succeeded' && !end.reported) unreportedByKilledWorker += 1;
    if (end.kind !== 'succeeded') problems.push(`${type} ${id} ${end.problem}`);
    if ((history?.claims.length ?? 0) > 1) count.retried += 1;
    count.lost += history?.settlements.filter(({ outcome }) => outcome === 'lost').length ?? 0;
  }
  const known = new Set(evidence.ledger.map(({ id }) => id));
  for (const id of new Set([...remaining.keys(), ...evidence.histories.keys()])) {
    if (!known.has(id)) problems.push(`task ${id} is in no transaction's ledger`);
  }
  return {
    types: [...counts.values()].sort((a, b) => a.type.localeCompare(b.type)),
    invariant: { holds: problems.length === 0, problems, unreportedByKilledWorker },
    takenOver: [...evidence.histories.values()].filter((each) => wasTakenOver(each, evidence.killedWorkers))
      .length,
  };
}

function wasTakenOver({ claims }: TaskHistory, killedWorkers: ReadonlySet<string>): boolean {
  return claims.some(({ worker }, at) => killedWorkers.has(worker) && claims[at + 1] !== undefined);
}

type End =
  | { readonly kind: 'succeeded'; readonly reported: boolean }
  | { readonly kind: 'dead' | 'unfinished' | 'unexplained'; readonly problem: string };

function endOf(
  row: { readonly dead: boolean } | undefined,
  history: TaskHistory | undefined,
  killedWorkers: ReadonlySet<string>,
): End {
  const successes = history?.settlements.filter(({ outcome }) => outcome === 'success').length ?? 0;
  if (successes > 1) return { kind: 'unexplained', problem: `ended ${successes} times` };
  if (row?.dead) return { kind: 'dead', problem: 'is a dead letter' };
  if (row !== undefined) return { kind: 'unfinished', problem: 'did not run to its end' };
  if (successes === 1) return { kind: 'succeeded', reported: true };
  // Only the holder's fenced delete removes a row. When the last holder was killed, its report died with it.
  const lastClaim = history?.claims.at(-1);
  if (lastClaim !== undefined && killedWorkers.has(lastClaim.worker))
    return { kind: 'succeeded', reported: false };
  return { kind: 'unexplained', problem: 'is gone, and no worker reported that it ended' };
}

function noCounts(type: TaskType): TypeCounts {
  return { type, enqueued: 0, succeeded: 0, retried: 0, dead: 0, lost: 0, rolledBack: 0 };
}

/** What the follow-up work should have left behind, in sentences; empty when it did. */
export function platformProblems({ edges, exploreRowsOfDeletedStacks, seats }: PlatformState): string[] {
  const problems: string[] = [];
  if (edges.differing > 0) problems.push(`${edges.differing} edges differ from what the stacks declare`);
  if (exploreRowsOfDeletedStacks > 0) {
    problems.push(`${exploreRowsOfDeletedStacks} Explore rows of deleted stacks are left`);
  }
  if (seats.audited !== seats.live) {
    problems.push(`${seats.audited} seats were audited, ${seats.live} are taken`);
  }
  return problems;
}

/** The report for people. */
export function renderReport(report: DemoReport): string {
  const { types, invariant, takeover, platform, requests } = report;
  const headings = ['task type', 'enqueued', 'succeeded', 'retried', 'dead', 'lost', 'rolled back'];
  const rows = types.map((each) => [
    each.type,
    each.enqueued,
    each.succeeded,
    each.retried,
    each.dead,
    each.lost,
    each.rolledBack,
  ]);
  const sum = (column: number) => rows.reduce((total, row) => total + Number(row[column]), 0);
  const total = ['all', ...headings.slice(1).map((_, at) => sum(at + 1))];
  return [
    table(headings, [...rows, total]),
    '',
    `  requests   ${requests.sent} sent, ${requests.committed} committed, ${requests.rolledBack} rolled back, ${requests.failed} failed`,
    `  takeover   ${takeover.type} ${takeover.taskId}: worker ${takeover.killedWorker} was killed, worker ${takeover.takenOverBy} took it over`,
    `             after ${seconds(takeover.waitedMs)} (lease ${seconds(takeover.leaseMs)}), attempt ${takeover.attempt}`,
    `             of the tasks that worker ${takeover.killedWorker} held, ${report.takenOver} in all were taken over`,
    `  graph      ${platform.edges.published} edges published, ${platform.edges.declared} declared`,
    `  explore    ${platform.exploreRowsOfDeletedStacks} rows of deleted stacks left`,
    `  seats      ${platform.seats.audited} audited, ${platform.seats.live} taken, cap ${platform.seats.cap}`,
    '',
    ...verdictLines(report),
    ...(invariant.unreportedByKilledWorker > 0
      ? [
          `  (${invariant.unreportedByKilledWorker} known by the row alone: the killed worker could not report them)`,
        ]
      : []),
  ].join('\n');
}

const PROBLEMS_SHOWN_MAX = 20;

function verdictLines({ ok, types, invariant, platform, requests }: DemoReport): string[] {
  const enqueued = types.reduce((total, each) => total + each.enqueued, 0);
  const rolledBack = types.reduce((total, each) => total + each.rolledBack, 0);
  if (ok) {
    return [
      `  HOLDS: each of the ${enqueued} tasks enqueued in committed transactions ran to its end exactly once;`,
      `         none of the ${rolledBack} enqueued in rolled-back ones exists or ran`,
    ];
  }
  const problems = [...invariant.problems, ...platformProblems(platform)];
  if (requests.failed > 0) problems.push(`${requests.failed} requests failed`);
  const shown = problems.slice(0, PROBLEMS_SHOWN_MAX).map((problem) => `    ${problem}`);
  const more = problems.length - shown.length;
  return ['  DOES NOT HOLD:', ...shown, ...(more > 0 ? [`    and ${more} more`] : [])];
}
