import { sql } from 'kysely';
import type { TaskId } from '../domain/ids.ts';
import { CHECK_PAGE_ROWS } from '../domain/limits.ts';
import type { StoredPayload } from '../domain/stored-payload.ts';
import type { ReadLane } from './lanes.ts';
import { isDead, isKnown, type KnownRevisions, knownRevisionsValue } from './predicates.ts';
import { parameter, statement } from './statement.ts';

/** One row of the queue, whoever can run it. */
export interface StoredTask {
  readonly id: TaskId;
  readonly type: string;
  readonly revision: number;
  readonly isDead: boolean;
  /** Undefined for a type that was not asked for, and for a newer revision: such a payload is not even sent. */
  readonly stored: StoredPayload | undefined;
}

export interface PageOptions {
  /** Begins behind this id, and does not go beyond the other. */
  readonly afterId: string;
  readonly untilId: string;
  /** The types whose payloads are wanted, with the newest revision of each. */
  readonly known: KnownRevisions;
  /** Of the payloads together; the page ends with the one that passes it. */
  readonly bytes: number;
}

const newestStatement = statement((db) =>
  db.selectFrom('async_tasks').select(sql<string | null>`max(id)::text`.as('id')),
);

// Cut by bytes on the server, since nobody knows beforehand how large the next payload is; the first of a page
// always comes, or a single larger one would stop the walk.
// The page is cut before the end of the walk is looked at, and by a literal: for a range between two ids a planner
// without statistics expects a handful of rows, and then sorts all that are left for each page.
// Pinned by test/statements/stored-payloads-plan.test.ts.
export const pageStatement = statement((db) =>
  db
    .with('page', (cte) =>
      cte
        .selectFrom('async_tasks')
        .where('id', '>', parameter<string>('afterId'))
        .orderBy('id')
        .limit(sql.lit(CHECK_PAGE_ROWS))
        .select((t) => [
          'id',
          'task_type',
          'payload_revision',
          sql<boolean>`${isDead(t)}`.as('dead'),
          sql<string | null>`case when ${isKnown(t)} then payload::text end`.as('payload_text'),
          sql<string | null>`case when ${isKnown(t)} then cursor::text end`.as('cursor_text'),
        ]),
    )
    .with('measured', (cte) =>
      cte
        .selectFrom('page')
        .selectAll()
        .select(
          sql<
            string | null
          >`sum(coalesce(octet_length(payload_text), 0) + coalesce(octet_length(cursor_text), 0))
            over (order by id rows between unbounded preceding and 1 preceding)`.as('bytes_before'),
        ),
    )
    .selectFrom('measured')
    .where('measured.id', '<=', parameter<string>('untilId'))
    .where(sql<boolean>`coalesce(bytes_before, 0) < ${parameter<number>('bytes')}`)
    .orderBy('measured.id')
    .select([
      sql<string>`measured.id::text`.as('id'),
      'task_type',
      'payload_revision',
      'dead',
      'payload_text',
      'cursor_text',
    ]),
);

/** The largest id there is; undefined for an empty queue. */
export async function newestId(lane: ReadLane): Promise<string | undefined> {
  const [row] = await newestStatement.run(lane, {});
  return row?.id ?? undefined;
}

/** The next rows by id, waiting, running and dead. Reads without a lock; an empty page is the end. */
export async function readStoredPage(lane: ReadLane, options: PageOptions): Promise<StoredTask[]> {
  const { known, ...page } = options;
  const rows = await pageStatement.run(lane, { ...page, known: knownRevisionsValue(known) });
  return rows.map((row) => ({
    id: row.id as TaskId,
    type: row.task_type,
    revision: row.payload_revision,
    isDead: row.dead,
    stored:
      row.payload_text === null
        ? undefined
        : {
            payloadText: row.payload_text,
            payloadRevision: row.payload_revision,
            cursorText: row.cursor_text ?? undefined,
          },
  }));
}
