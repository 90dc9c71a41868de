import { type ColumnType, type Generated, type Kysely, sql } from 'kysely';
import type { TaskType } from '../../generated/tasks.ts';
import type { PlatformTables } from '../handlers/index.ts';

/** The platform's own tables and the demo's ledger, beside the queue's schema in one database. */
export interface DemoTables extends PlatformTables {
  ledger: LedgerTable;
}

/** A task that a transaction enqueued, and whether that transaction committed. */
interface LedgerTable {
  task_id: ColumnType<string, string, never>;
  task_type: TaskType;
  committed: boolean;
  noted_at: Generated<Date>;
}

export type DemoDatabase = Kysely<DemoTables>;

const TABLES = [
  `CREATE TABLE organisations (
    id        uuid    PRIMARY KEY DEFAULT gen_random_uuid(),
    name      text    NOT NULL UNIQUE,
    seat_cap  integer NOT NULL CHECK (seat_cap >= 0)
  )`,
  `CREATE TABLE stacks (
    id                    uuid    PRIMARY KEY DEFAULT gen_random_uuid(),
    organisation_id       uuid    NOT NULL REFERENCES organisations ON DELETE CASCADE,
    name                  text    NOT NULL CHECK (name <> ''),
    generation            integer NOT NULL CHECK (generation >= 1),
    published_generation  integer NOT NULL DEFAULT 0,
    deleted_at            timestamptz,
    CHECK (published_generation <= generation)
  )`,
  // A deleted stack gives its name up.
  'CREATE UNIQUE INDEX stacks_live_name ON stacks (organisation_id, name) WHERE deleted_at IS NULL',
  `CREATE TABLE deployments (
    stack_id     uuid        NOT NULL REFERENCES stacks ON DELETE CASCADE,
    generation   integer     NOT NULL,
    change       text        NOT NULL CHECK (change IN ('deploy', 'rename', 'delete')),
    name         text        NOT NULL,
    depends_on   uuid[]      NOT NULL,
    deployed_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stack_id, generation)
  )`,
  `CREATE TABLE edges (
    from_stack_id  uuid    NOT NULL REFERENCES stacks ON DELETE CASCADE,
    to_stack_id    uuid    NOT NULL REFERENCES stacks ON DELETE CASCADE,
    from_name      text    NOT NULL,
    generation     integer NOT NULL,
    PRIMARY KEY (from_stack_id, to_stack_id)
  )`,
  'CREATE INDEX edges_to ON edges (to_stack_id)',
  // No foreign key: the rows outlive their stack until its purge, as they would in a store of their own.
  `CREATE TABLE explore_rows (
    stack_id  uuid NOT NULL,
    path      text NOT NULL,
    value     text NOT NULL,
    PRIMARY KEY (stack_id, path)
  )`,
  `CREATE TABLE seat_audits (
    organisation_id  uuid        PRIMARY KEY REFERENCES organisations ON DELETE CASCADE,
    seats_taken      integer     NOT NULL,
    seat_cap         integer     NOT NULL,
    over_cap         boolean     NOT NULL,
    audited_at       timestamptz NOT NULL
  )`,
  `CREATE TABLE ledger (
    task_id    bigint      PRIMARY KEY,
    task_type  text        NOT NULL,
    committed  boolean     NOT NULL,
    noted_at   timestamptz NOT NULL DEFAULT now()
  )`,
];

/** Creates the platform's tables in a database that has none of them, in one transaction. */
export async function createTables(db: DemoDatabase): Promise<void> {
  await db.transaction().execute(async (tx) => {
    for (const table of TABLES) await sql.raw(table).execute(tx);
  });
}
