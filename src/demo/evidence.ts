import { sql } from 'kysely';
import { stackPrefix } from '../handlers/index.ts';
import type { LedgerEntry, PlatformState } from './report.ts';
import { RUN_PATH } from './run-stack.ts';
import type { DemoDatabase, ExploreDatabase } from './schema.ts';
import type { Stores } from './stores.ts';

// What is read from the stores at the end, to be compared with what the workers reported.

export async function readLedger(db: DemoDatabase): Promise<LedgerEntry[]> {
  const rows = await db
    .selectFrom('ledger')
    .select(['task_id', 'task_type', 'committed', 'done_inline'])
    .execute();
  return rows.map(({ task_id: id, task_type: type, committed, done_inline: doneInline }) => ({
    id,
    type,
    committed,
    doneInline,
  }));
}

/** A row that is still in the queue's own table: what has not run to its end. */
interface Remaining {
  readonly id: string;
  readonly dead: boolean;
  /** Not for later: it waits for a slot, or a worker holds it. */
  readonly due: boolean;
}

export async function readRemaining(db: DemoDatabase): Promise<Remaining[]> {
  const { rows } = await sql<Remaining>`
    SELECT id::text AS id, run_at <= now() OR lease_expires_at > now() AS due,
      exhausted AND (lease_expires_at IS NULL OR lease_expires_at <= now()) AS dead
    FROM taskq.async_tasks ORDER BY id`.execute(db);
  return rows;
}

/** Compares what the tasks made, in all three stores, with what it was made from. */
export async function readPlatformState(stores: Stores, signal: AbortSignal): Promise<PlatformState> {
  const [edges, seats, index, findings, objects] = await Promise.all([
    readEdges(stores.db),
    readSeats(stores.db),
    readIndex(stores),
    countFindings(stores.explore),
    readObjects(stores, signal),
  ]);
  const { triggered } = await stores.db
    .selectFrom('triggered_runs')
    .select(({ fn }) => fn.countAll<string>().as('triggered'))
    .executeTakeFirstOrThrow();
  return { edges, seats, index, findings, objects, triggeredRuns: Number(triggered) };
}

/** Edges as they are published, against what live stacks declare of live stacks. */
export async function readEdges(db: DemoDatabase): Promise<PlatformState['edges']> {
  const { rows } = await sql<PlatformState['edges']>`
    WITH live AS (
      SELECT * FROM stacks WHERE deleted_at IS NULL
    ), published AS (
      SELECT from_stack_id, to_stack_id, from_name FROM edges
    ), declared AS (
      SELECT declaring.stack_id, depends_on.id, declaring.name
      FROM deployments AS declaring
      JOIN live ON live.id = declaring.stack_id AND live.generation = declaring.generation
      CROSS JOIN LATERAL unnest(declaring.depends_on) AS depends_on (id)
      JOIN live AS target ON target.id = depends_on.id
    )
    SELECT
      (SELECT count(*)::int FROM published) AS published,
      (SELECT count(*)::int FROM declared) AS declared,
      (SELECT count(*)::int FROM (TABLE declared EXCEPT TABLE published) AS differing) AS missing,
      (SELECT count(*)::int FROM (TABLE published EXCEPT TABLE declared) AS differing) AS surplus`.execute(
    db,
  );
  return only(rows);
}

async function readSeats(db: DemoDatabase): Promise<PlatformState['seats']> {
  const { rows } = await sql<PlatformState['seats']>`
    SELECT
      (SELECT sum(seats_taken)::int FROM seat_audits) AS audited,
      (SELECT count(*)::int FROM stacks WHERE deleted_at IS NULL) AS live,
      (SELECT sum(seat_cap)::int FROM organisations) AS cap`.execute(db);
  return only(rows);
}

/** The newest run of each live stack, against the run that the index has of it. No query spans the two databases. */
async function readIndex({ db, explore }: Stores): Promise<PlatformState['index']> {
  const live = await db
    .selectFrom('stacks')
    .innerJoin('deployments', (join) =>
      join
        .onRef('deployments.stack_id', '=', 'stacks.id')
        .onRef('deployments.generation', '=', 'stacks.generation'),
    )
    .select(['stacks.id', 'deployments.analysis_key'])
    .where('stacks.deleted_at', 'is', null)
    .execute();
  const indexed = await explore
    .selectFrom('resources')
    .select(['stack_id', 'value'])
    .where('path', '=', RUN_PATH)
    .execute();
  const runs = new Map(indexed.map(({ stack_id, value }) => [stack_id, value]));
  const isIndexed = (stack: (typeof live)[number]) =>
    stack.analysis_key?.includes(`/${runs.get(stack.id)}/`) === true;
  const liveIds = new Set(live.map(({ id }) => id));
  return {
    stacks: indexed.length,
    outdated: live.filter((stack) => !isIndexed(stack)).length,
    ofDeletedStacks: indexed.filter(({ stack_id }) => !liveIds.has(stack_id)).length,
  };
}

async function countFindings(explore: ExploreDatabase): Promise<PlatformState['findings']> {
  const rows = await explore
    .selectFrom('findings')
    .select(({ fn }) => ['rule', fn.countAll<string>().as('stacks')])
    .groupBy('rule')
    .orderBy('rule')
    .execute();
  return Object.fromEntries(rows.map(({ rule, stacks }) => [rule, Number(stacks)]));
}

/** Every object of the store, against the prefixes that live stacks have. */
async function readObjects({ db, objects }: Stores, signal: AbortSignal): Promise<PlatformState['objects']> {
  const live = await db
    .selectFrom('stacks')
    .innerJoin('deployments', (join) =>
      join
        .onRef('deployments.stack_id', '=', 'stacks.id')
        .onRef('deployments.generation', '=', 'stacks.generation'),
    )
    .select(['stacks.storage_key', 'deployments.analysis_key'])
    .where('stacks.deleted_at', 'is', null)
    .execute();
  const keys = new Set<string>();
  let next: string | undefined;
  do {
    const page = await objects.listPage('stacks/', next, signal);
    for (const key of page.keys) keys.add(key);
    next = page.next;
  } while (next !== undefined);
  const prefixes = new Set(live.map(({ storage_key }) => stackPrefix(storage_key)));
  const prefixOf = (key: string) => key.slice(0, key.indexOf('/', 'stacks/'.length) + 1);
  const owned = [...keys].filter((key) => prefixes.has(prefixOf(key)));
  return {
    ofLiveStacks: owned.length,
    ofDeletedStacks: keys.size - owned.length,
    missing: live.filter(({ analysis_key }) => !keys.has(analysis_key ?? '')).length,
  };
}

function only<Row>(rows: readonly Row[]): Row {
  const [row] = rows;
  if (row === undefined) throw new Error('unreachable: a select without FROM answers one row');
  return row;
}
