import { type ColumnType, type Generated, type Kysely, sql } from 'kysely';
import type { TaskType } from '../../generated/tasks.ts';
import type { ExploreTables, PlatformTables } from '../handlers/index.ts';

/** The platform's own tables and the demo's ledger, beside the queue's schema in one database. */
export interface DemoTables extends PlatformTables {
  ledger: LedgerTable;
}

/** A task that a transaction enqueued, and whether that transaction committed. */
interface LedgerTable {
  task_id: ColumnType<string, string, never>;
  task_type: TaskType;
  committed: boolean;
  /** Its enqueuer has done the work itself and taken the task out of the queue. */
  done_inline: Generated<boolean>;
  noted_at: Generated<Date>;
}

export type DemoDatabase = Kysely<DemoTables>;
export type ExploreDatabase = Kysely<ExploreTables>;

const PLATFORM_TABLES = [
  `CREATE TABLE organisations (
    id                      uuid    PRIMARY KEY DEFAULT gen_random_uuid(),
    name                    text    NOT NULL UNIQUE,
    seat_cap                integer NOT NULL CHECK (seat_cap >= 0),
    diagnostics_generation  integer NOT NULL DEFAULT 0
  )`,
  `CREATE TABLE stacks (
    id                    uuid    PRIMARY KEY DEFAULT gen_random_uuid(),
    organisation_id       uuid    NOT NULL REFERENCES organisations ON DELETE CASCADE,
    name                  text    NOT NULL CHECK (name <> ''),
    storage_key           text    NOT NULL UNIQUE CHECK (storage_key ~ '^[A-Za-z0-9_-]+$'),
    generation            integer NOT NULL CHECK (generation >= 1),
    published_generation  integer NOT NULL DEFAULT 0,
    resolved_generation   integer NOT NULL DEFAULT 0,
    deleted_at            timestamptz,
    CHECK (published_generation <= generation),
    CHECK (resolved_generation <= generation)
  )`,
  // A deleted stack gives its name up.
  'CREATE UNIQUE INDEX stacks_live_name ON stacks (organisation_id, name) WHERE deleted_at IS NULL',
  // The order in which rebuilds walk.
  'CREATE INDEX stacks_live ON stacks (organisation_id, id) WHERE deleted_at IS NULL',
  `CREATE TABLE deployments (
    stack_id      uuid        NOT NULL REFERENCES stacks ON DELETE CASCADE,
    generation    integer     NOT NULL,
    change        text        NOT NULL CHECK (change IN ('deploy', 'rename', 'delete')),
    name          text        NOT NULL,
    depends_on    uuid[]      NOT NULL,
    analysis_key  text,
    deployed_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stack_id, generation),
    CHECK ((analysis_key IS NULL) = (change = 'delete'))
  )`,
  `CREATE TABLE edges (
    from_stack_id  uuid    NOT NULL REFERENCES stacks ON DELETE CASCADE,
    to_stack_id    uuid    NOT NULL REFERENCES stacks ON DELETE CASCADE,
    from_name      text    NOT NULL,
    generation     integer NOT NULL,
    PRIMARY KEY (from_stack_id, to_stack_id)
  )`,
  'CREATE INDEX edges_to ON edges (to_stack_id)',
  `CREATE TABLE triggered_runs (
    stack_id             uuid        NOT NULL REFERENCES stacks ON DELETE CASCADE,
    upstream_stack_id    uuid        NOT NULL REFERENCES stacks ON DELETE CASCADE,
    upstream_generation  integer     NOT NULL,
    requested_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (upstream_stack_id, upstream_generation, stack_id)
  )`,
  `CREATE TABLE seat_audits (
    organisation_id  uuid        PRIMARY KEY REFERENCES organisations ON DELETE CASCADE,
    seats_taken      integer     NOT NULL,
    seat_cap         integer     NOT NULL,
    over_cap         boolean     NOT NULL,
    audited_at       timestamptz NOT NULL
  )`,
  `CREATE TABLE ledger (
    task_id      bigint      PRIMARY KEY,
    task_type    text        NOT NULL,
    committed    boolean     NOT NULL,
    done_inline  boolean     NOT NULL DEFAULT false,
    noted_at     timestamptz NOT NULL DEFAULT now()
  )`,
];

// No foreign key leads out of the Explore database: a stack's rows outlive it until its purge.
const EXPLORE_TABLES = [
  `CREATE TABLE projections (
    stack_id         uuid        PRIMARY KEY,
    organisation_id  uuid        NOT NULL,
    generation       integer     NOT NULL,
    projected_at     timestamptz NOT NULL DEFAULT now()
  )`,
  'CREATE INDEX projections_organisation ON projections (organisation_id)',
  `CREATE TABLE resources (
    stack_id  uuid NOT NULL REFERENCES projections ON DELETE CASCADE,
    path      text NOT NULL,
    value     text NOT NULL,
    PRIMARY KEY (stack_id, path)
  )`,
  `CREATE TABLE diagnostics (
    organisation_id  uuid        PRIMARY KEY,
    generation       integer     NOT NULL,
    scanned_at       timestamptz NOT NULL DEFAULT now()
  )`,
  `CREATE TABLE findings (
    organisation_id  uuid NOT NULL,
    stack_id         uuid NOT NULL,
    rule             text NOT NULL,
    detail           text NOT NULL,
    PRIMARY KEY (organisation_id, stack_id, rule)
  )`,
  'CREATE INDEX findings_stack ON findings (stack_id)',
];

/** Creates the platform's tables in a database that has none of them, in one transaction. */
export async function createPlatformTables(db: DemoDatabase): Promise<void> {
  await create(db, PLATFORM_TABLES);
}

/** Creates the tables of Explore in a database that has none of them, in one transaction. */
export async function createExploreTables(explore: ExploreDatabase): Promise<void> {
  await create(explore, EXPLORE_TABLES);
}

async function create<Tables>(db: Kysely<Tables>, statements: readonly string[]): Promise<void> {
  await db.transaction().execute(async (tx) => {
    for (const statement of statements) await sql.raw(statement).execute(tx);
  });
}
