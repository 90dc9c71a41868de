import { type Kysely, sql } from 'kysely';
import type { SocialTables } from './tables.ts';

const ID = 'id uuid PRIMARY KEY DEFAULT gen_random_uuid()';
const OWNER = 'account_id uuid NOT NULL REFERENCES accounts ON DELETE CASCADE';

const TABLES = [
  `CREATE TABLE accounts (
    ${ID},
    handle            text        NOT NULL UNIQUE,
    country           text,
    status            text        NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'suspended', 'deactivated')),
    avatar_key        text        UNIQUE,
    flagged_at        timestamptz,
    suspended_at      timestamptz,
    deactivated_at    timestamptz,
    activated_at      timestamptz,
    last_active_at    timestamptz,
    created_at        timestamptz NOT NULL DEFAULT now(),
    enrichment_quota  integer     NOT NULL DEFAULT 100 CHECK (enrichment_quota >= 0)
  )`,
  ...['refresh_tokens', 'one_time_passwords', 'sessions'].map(
    (name) => `CREATE TABLE ${name} (${ID}, ${OWNER}, expires_at timestamptz NOT NULL)`,
  ),
  `CREATE TABLE events (
    ${ID},
    host_id      uuid             REFERENCES accounts ON DELETE SET NULL,
    title        text             NOT NULL,
    latitude     double precision NOT NULL CHECK (latitude BETWEEN -85.05112878 AND 85.05112878),
    longitude    double precision NOT NULL CHECK (longitude BETWEEN -180 AND 180),
    starts_at    timestamptz      NOT NULL,
    ends_at      timestamptz      NOT NULL CHECK (ends_at > starts_at),
    status       text             NOT NULL DEFAULT 'upcoming'
                                  CHECK (status IN ('upcoming', 'live', 'finished', 'archived')),
    archived_at  timestamptz,
    cover_key    text             UNIQUE,
    deleted_at   timestamptz
  )`,
  `CREATE TABLE moments (
    ${ID}, ${OWNER},
    media_key     text        UNIQUE,
    is_journaled  boolean     NOT NULL DEFAULT false,
    expires_at    timestamptz NOT NULL,
    deleted_at    timestamptz
  )`,
  `CREATE TABLE messages (
    ${ID}, ${OWNER},
    body            text        NOT NULL,
    attachment_key  text        UNIQUE,
    expires_at      timestamptz
  )`,
  `CREATE TABLE notifications (${ID}, ${OWNER}, read_at timestamptz, expires_at timestamptz)`,
  `CREATE TABLE challenges (
    ${ID},
    title      text        NOT NULL,
    status     text        NOT NULL DEFAULT 'draft' CHECK (status IN ('draft', 'published', 'archived')),
    starts_at  timestamptz NOT NULL,
    ends_at    timestamptz,
    rule       jsonb       NOT NULL,
    reward     jsonb       NOT NULL
  )`,
  `CREATE TABLE challenge_progress (
    ${OWNER},
    challenge_id  uuid    NOT NULL REFERENCES challenges ON DELETE CASCADE,
    is_satisfied  boolean NOT NULL,
    PRIMARY KEY (account_id, challenge_id)
  )`,
  `CREATE TABLE curios (${ID}, kind text NOT NULL CHECK (kind IN ('stamp', 'curio')), name text NOT NULL)`,
  `CREATE TABLE curio_grants (
    ${OWNER},
    curio_id      uuid        NOT NULL REFERENCES curios,
    challenge_id  uuid        NOT NULL REFERENCES challenges,
    granted_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (account_id, curio_id, challenge_id)
  )`,
  `CREATE TABLE travel_logs (
    ${ID}, ${OWNER},
    country       text        NOT NULL,
    category      text        NOT NULL,
    travelled_at  timestamptz NOT NULL
  )`,
  'CREATE INDEX travel_logs_account ON travel_logs (account_id)',
  `CREATE TABLE items (
    ${ID}, ${OWNER},
    capture            text        NOT NULL,
    revision           integer     NOT NULL DEFAULT 1,
    parsed_revision    integer,
    title              text,
    tags               text[]      NOT NULL DEFAULT '{}',
    enriching_task_id  bigint,
    enriching_until    timestamptz
  )`,
  `CREATE TABLE parsed_links (
    ${ID},
    url          text        NOT NULL UNIQUE,
    title        text,
    description  text,
    enriched_at  timestamptz,
    problem      text,
    created_at   timestamptz NOT NULL DEFAULT now()
  )`,
  `CREATE TABLE item_links (
    item_id  uuid NOT NULL REFERENCES items ON DELETE CASCADE,
    link_id  uuid NOT NULL REFERENCES parsed_links,
    PRIMARY KEY (item_id, link_id)
  )`,
  'CREATE INDEX item_links_link ON item_links (link_id)',
  `CREATE TABLE enrichment_spends (
    task_id   bigint      PRIMARY KEY,
    ${OWNER},
    links     integer     NOT NULL,
    spent_at  timestamptz NOT NULL DEFAULT now()
  )`,
  'CREATE INDEX enrichment_spends_account ON enrichment_spends (account_id, spent_at)',
  `CREATE TABLE locations (
    ${ID},
    name           text             NOT NULL,
    category       text             NOT NULL,
    latitude       double precision NOT NULL CHECK (latitude BETWEEN -90 AND 90),
    longitude      double precision NOT NULL CHECK (longitude BETWEEN -180 AND 180),
    is_active      boolean          NOT NULL DEFAULT true,
    enrichment_at  timestamptz,
    geohash        text,
    embedding      real[],
    created_at     timestamptz      NOT NULL DEFAULT now()
  )`,
  'CREATE INDEX locations_never_enriched ON locations (created_at, id) WHERE enrichment_at IS NULL',
  `CREATE TABLE ranking_impressions (${ID}, query text NOT NULL, shown_at timestamptz NOT NULL DEFAULT now())`,
  `CREATE TABLE ranking_selections (
    ${ID},
    impression_id  uuid        NOT NULL REFERENCES ranking_impressions ON DELETE CASCADE,
    selected_at    timestamptz NOT NULL DEFAULT now()
  )`,
  `CREATE TABLE gauges (
    name        text             NOT NULL,
    label       text             NOT NULL,
    value       double precision NOT NULL,
    sampled_at  timestamptz      NOT NULL DEFAULT now(),
    PRIMARY KEY (name, label)
  )`,
];

/** Creates the app's tables in a database that has none of them, in one transaction. */
export async function createTables(db: Kysely<SocialTables>): Promise<void> {
  await db.transaction().execute(async (tx) => {
    for (const table of TABLES) await sql.raw(table).execute(tx);
  });
}
