import type { TaskId } from '../domain/ids.ts';
import { CHECK_EXAMPLES_MAX, CHECK_PAGE_BYTES } from '../domain/limits.ts';
import { readStoredPayload, type StoredPayload } from '../domain/stored-payload.ts';
import type { RegisteredTask, TaskSet } from '../domain/task-set.ts';
import type { ReadLane } from '../statements/lanes.ts';
import { newestId, readStoredPage, type StoredTask } from '../statements/stored-payloads.ts';
import { describePoison, type PoisonDescription } from './describe-poison.ts';

/** Rows by what they are: live ones wait or run, dead ones are kept until somebody replays them or they are pruned. */
export interface RowCounts {
  readonly live: number;
  readonly dead: number;
}

/** One poison row. What it holds is not in here: names and expectations are the schema's. */
export interface PoisonExample extends PoisonDescription {
  readonly id: TaskId;
  readonly isDead: boolean;
}

/** Rows of one task type that were enqueued under one revision. */
export interface RevisionReport {
  readonly type: string;
  readonly revision: number;
  /** What the code at hand makes of them. */
  readonly currentRevision: number;
  /** They parse as they are. */
  readonly fine: RowCounts;
  /** They parse after at least one upgrade. */
  readonly upgraded: RowCounts;
  /** A worker with this code would make dead letters of them. */
  readonly poison: RowCounts;
  /** Live ones first. */
  readonly examples: readonly PoisonExample[];
}

/** Rows that a worker with this code leaves alone: of a type it does not know, or of a newer revision. */
export interface LeftReport {
  readonly type: string;
  /** Undefined for an unknown type, of whatever revision. */
  readonly revision: number | undefined;
  readonly rows: RowCounts;
}

export interface PayloadReport {
  /** Rows looked at. */
  readonly rows: number;
  /** By type, then revision. */
  readonly revisions: readonly RevisionReport[];
  readonly left: readonly LeftReport[];
  readonly fine: RowCounts;
  readonly upgraded: RowCounts;
  readonly poison: RowCounts;
}

export interface CheckPayloadsOptions {
  /** Task types to look at, all of which the task set has; default all rows. */
  readonly types?: readonly string[] | undefined;
  /** Called after each page. */
  readonly onProgress?: (progress: { readonly rows: number; readonly livePoison: number }) => void;
}

/**
 * Parses the rows that wait, and the dead letters, exactly as a worker with `tasks` would, and changes nothing.
 * It walks by id up to the newest there was at the start, and holds one page of rows at a time. Rejects with
 * database errors.
 */
export async function checkPayloads(
  lane: ReadLane,
  tasks: TaskSet,
  { types, onProgress }: CheckPayloadsOptions = {},
): Promise<PayloadReport> {
  const wanted = types === undefined ? undefined : new Set(types);
  const known = new Map(Object.entries(tasks).filter(([type]) => wanted?.has(type) ?? true));
  const revisions = Object.fromEntries([...known].map(([type, { revision }]) => [type, revision]));
  const tally = new Tally();
  const untilId = await newestId(lane);
  let afterId = '0';
  while (untilId !== undefined) {
    const page = await readStoredPage(lane, { afterId, untilId, known: revisions, bytes: CHECK_PAGE_BYTES });
    const last = page.at(-1);
    if (last === undefined) break;
    for (const row of page) {
      if (wanted?.has(row.type) ?? true) await check(row, known.get(row.type), tally);
    }
    afterId = last.id;
    onProgress?.({ rows: tally.rows, livePoison: tally.livePoison });
  }
  return tally.report();
}

async function check(row: StoredTask, task: RegisteredTask | undefined, tally: Tally): Promise<void> {
  if (task === undefined) tally.leave(row, undefined);
  else if (row.stored === undefined) tally.leave(row, row.revision);
  else tally.add(row, task, await judge(task, row.stored));
}

type Verdict = { readonly kind: 'fine' | 'upgraded' } | ({ readonly kind: 'poison' } & PoisonDescription);

async function judge(task: RegisteredTask, stored: StoredPayload): Promise<Verdict> {
  const { definition, revision } = task;
  const read = await readStoredPayload(task, stored);
  if (read.kind === 'poison') return { kind: 'poison', ...describePoison(definition, read) };
  const isUpgraded = Object.keys(definition.upgrades)
    .map(Number)
    .some((to) => to > stored.payloadRevision && to <= revision);
  return { kind: isUpgraded ? 'upgraded' : 'fine' };
}

type Counter = { -readonly [Key in keyof RowCounts]: RowCounts[Key] };

interface RevisionTally {
  readonly type: string;
  readonly revision: number;
  readonly currentRevision: number;
  readonly fine: Counter;
  readonly upgraded: Counter;
  readonly poison: Counter;
  readonly examples: { readonly live: PoisonExample[]; readonly dead: PoisonExample[] };
}

/** Counts as the rows go by; of the rows themselves it keeps the few examples. */
class Tally {
  readonly #revisions = new Map<string, RevisionTally>();
  readonly #left = new Map<string, Omit<LeftReport, 'rows'> & { readonly rows: Counter }>();
  rows = 0;
  livePoison = 0;

  add({ id, type, revision, isDead }: StoredTask, task: RegisteredTask, verdict: Verdict): void {
    this.rows += 1;
    const key = keyOf(type, revision);
    let of = this.#revisions.get(key);
    if (of === undefined) {
      of = {
        type,
        revision,
        currentRevision: task.revision,
        fine: counter(),
        upgraded: counter(),
        poison: counter(),
        examples: { live: [], dead: [] },
      };
      this.#revisions.set(key, of);
    }
    const state = isDead ? 'dead' : 'live';
    of[verdict.kind][state] += 1;
    if (verdict.kind !== 'poison') return;
    if (!isDead) this.livePoison += 1;
    const { path, expectation, more } = verdict;
    const examples = of.examples[state];
    if (examples.length < CHECK_EXAMPLES_MAX) examples.push({ id, isDead, path, expectation, more });
  }

  leave({ type, isDead }: StoredTask, revision: number | undefined): void {
    this.rows += 1;
    const key = keyOf(type, revision ?? 0);
    const of = this.#left.get(key) ?? { type, revision, rows: counter() };
    of.rows[isDead ? 'dead' : 'live'] += 1;
    this.#left.set(key, of);
  }

  report(): PayloadReport {
    const revisions = [...this.#revisions.values()].sort(byTypeAndRevision).map((of) => ({
      ...of,
      examples: [...of.examples.live, ...of.examples.dead].slice(0, CHECK_EXAMPLES_MAX),
    }));
    return {
      rows: this.rows,
      revisions,
      left: [...this.#left.values()].sort(byTypeAndRevision),
      fine: sum(revisions.map(({ fine }) => fine)),
      upgraded: sum(revisions.map(({ upgraded }) => upgraded)),
      poison: sum(revisions.map(({ poison }) => poison)),
    };
  }
}

const counter = (): Counter => ({ live: 0, dead: 0 });

const keyOf = (type: string, revision: number): string => `${revision} ${type}`;

interface TypeAndRevision {
  readonly type: string;
  readonly revision: number | undefined;
}

/** By code unit, as in every generated file: the same on every machine. */
function byTypeAndRevision(left: TypeAndRevision, right: TypeAndRevision): number {
  if (left.type !== right.type) return left.type < right.type ? -1 : 1;
  return (left.revision ?? 0) - (right.revision ?? 0);
}

function sum(counts: readonly RowCounts[]): RowCounts {
  const total = counter();
  for (const { live, dead } of counts) {
    total.live += live;
    total.dead += dead;
  }
  return total;
}
