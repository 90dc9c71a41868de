import type { TaskType } from '../../generated/tasks.ts';
import type { Comeback } from './comeback.ts';
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
  /** Done by its enqueuer, which took it out of the queue. */
  readonly doneInline: boolean;
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
  /** Of those, done by their own enqueuer, who dequeued them while no worker held them. */
  inline: number;
  /** Of those enqueued, how many needed more than one attempt. The slices of a rebuild are first attempts each. */
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

/** What the tasks made in the three stores, after the drain, against what it was made from. */
export interface PlatformState {
  readonly edges: {
    readonly published: number;
    readonly declared: number;
    readonly missing: number;
    readonly surplus: number;
  };
  /** Stacks in the resource index; `outdated` are live ones that it has an older run of, or none. */
  readonly index: { readonly stacks: number; readonly outdated: number; readonly ofDeletedStacks: number };
  /** Objects; `missing` are live stacks without their newest analysis. */
  readonly objects: {
    readonly ofLiveStacks: number;
    readonly ofDeletedStacks: number;
    readonly missing: number;
  };
  readonly seats: { readonly audited: number; readonly live: number; readonly cap: number };
  /** Stacks by the rule that found something about them. */
  readonly findings: Readonly<Record<string, number>>;
  readonly triggeredRuns: number;
}

/** What the sweep found and mended. */
export interface SweepOutcome {
  readonly rebuilds: number;
  /** Of a second sweep right after the first: none may be new while those of the first are under way. */
  readonly underWay: number;
  readonly slices: number;
  /** Edges that were missing or surplus before. */
  readonly edgesMended: number;
}

export interface DemoReport extends Verdict {
  readonly ok: boolean;
  readonly input: Omit<LoadedOrganisation, 'id'>;
  readonly requests: TrafficCounts;
  readonly takeover: Takeover;
  readonly comeback: Comeback;
  readonly sweep: SweepOutcome;
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
  for (const { id, type, committed, doneInline } of evidence.ledger) {
    const count = counts.get(type) ?? noCounts(type);
    counts.set(type, count);
    const history = evidence.histories.get(id);
    if (!committed) {
      count.rolledBack += 1;
      if (remaining.has(id)) problems.push(`${type} ${id} was rolled back and is in the table`);
      if (history !== undefined) problems.push(`${type} ${id} was rolled back and ran`);
      continue;
    }
    const end = endOf({ doneInline, row: remaining.get(id), history }, evidence.killedWorkers);
    if (doneInline) count.inline += 1;
    count.enqueued += 1;
    if (end.kind === 'succeeded') count.succeeded += 1;
    if (end.kind === 'dead') count.dead += 1;
    if (end.kind === 'succeeded' && !end.reported) unreportedByKilledWorker += 1;
    if (end.kind !== 'succeeded') problems.push(`${type} ${id} ${end.problem}`);
    if (history?.claims.some(({ attempt }) => attempt > 1)) count.retried += 1;
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
  task: {
    readonly doneInline: boolean;
    readonly row: { readonly dead: boolean } | undefined;
    readonly history: TaskHistory | undefined;
  },
  killedWorkers: ReadonlySet<string>,
): End {
  const { doneInline, row, history } = task;
  const reported = history?.settlements.filter(({ outcome }) => outcome === 'success').length ?? 0;
  const successes = reported + (doneInline ? 1 : 0);
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
  return { type, enqueued: 0, succeeded: 0, inline: 0, retried: 0, dead: 0, lost: 0, rolledBack: 0 };
}

/** What the follow-up work should have left behind, in sentences; empty when it did. */
export function platformProblems({ edges, index, objects, seats }: PlatformState): string[] {
  const problems: string[] = [];
  const none = (count: number, what: string) => {
    if (count > 0) problems.push(`${count} ${what}`);
  };
  none(edges.missing, 'edges that live stacks declare are missing');
  none(edges.surplus, 'edges are published that no live stack declares');
  none(index.outdated, 'live stacks are not in the index as their newest run found them');
  none(index.ofDeletedStacks, 'deleted stacks are left in the index');
  none(objects.ofDeletedStacks, 'objects of deleted stacks are left');
  none(objects.missing, 'live stacks have lost their objects');
  if (seats.audited !== seats.live) {
    problems.push(`${seats.audited} seats were audited, ${seats.live} are taken`);
  }
  return problems;
}

/** Everything that should not be, in sentences; empty when all is well. */
export function problemsOf(report: Omit<DemoReport, 'ok'>): string[] {
  const { invariant, platform, requests, sweep, comeback } = report;
  const problems = [...invariant.problems, ...platformProblems(platform)];
  if (requests.failed > 0) problems.push(`${requests.failed} requests failed`);
  if (sweep.underWay !== sweep.rebuilds) {
    problems.push(`the second sweep found ${sweep.underWay} of ${sweep.rebuilds} rebuilds under way`);
  }
  if (comeback.objectsOfOldPrefix > 0)
    problems.push(`objects of the old prefix of '${comeback.stack}' are left`);
  if (comeback.objectsOfNewPrefix === 0)
    problems.push(`'${comeback.stack}' lost the objects of its new prefix`);
  return problems;
}

/** The report for people. */
export function renderReport(report: DemoReport): string {
  const { types, invariant, takeover, comeback, sweep, platform, requests } = report;
  const findings = Object.entries(platform.findings).map(([rule, stacks]) => `${stacks} ${rule}`);
  const headings = ['task type', 'enqueued', 'succeeded', 'inline', 'retried', 'dead', 'lost', 'rolled back'];
  const rows = types.map((each) => [
    each.type,
    each.enqueued,
    each.succeeded,
    each.inline,
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
    `  comeback   ${comeback.stack}: ${comeback.objectsOfNewPrefix} objects of its new prefix kept, ${comeback.objectsOfOldPrefix} of its old one left`,
    `  sweep      ${sweep.rebuilds} rebuilds in ${sweep.slices} slices, ${sweep.edgesMended} edges mended`,
    `  graph      ${platform.edges.published} edges published, ${platform.edges.declared} declared`,
    `  index      ${platform.index.stacks} stacks, ${platform.index.outdated} outdated, ${platform.index.ofDeletedStacks} of deleted stacks left`,
    `  objects    ${platform.objects.ofLiveStacks} of live stacks, ${platform.objects.ofDeletedStacks} of deleted stacks left`,
    `  findings   ${findings.length === 0 ? 'none' : findings.join(', ')}`,
    `  triggers   ${platform.triggeredRuns} runs requested of stacks above a deployed one`,
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

function verdictLines(report: DemoReport): string[] {
  const { ok, types } = report;
  const enqueued = types.reduce((total, each) => total + each.enqueued, 0);
  const rolledBack = types.reduce((total, each) => total + each.rolledBack, 0);
  if (ok) {
    return [
      `  HOLDS: each of the ${enqueued} tasks enqueued in committed transactions ran to its end exactly once;`,
      `         none of the ${rolledBack} enqueued in rolled-back ones exists or ran`,
    ];
  }
  const problems = problemsOf(report);
  const shown = problems.slice(0, PROBLEMS_SHOWN_MAX).map((problem) => `    ${problem}`);
  const more = problems.length - shown.length;
  return ['  DOES NOT HOLD:', ...shown, ...(more > 0 ? [`    and ${more} more`] : [])];
}
