-- Who is there: each replica says every quarter of a minute what it is and what it does. For people and the admin API
-- only; no claim, settlement or tick depends on a row here.
-- Runs with the chosen schema first on search_path.
-- Oldest code that works with it: 0.1.0, whose replicas do not say that they are there.

CREATE TABLE async_replicas (
  id               uuid        PRIMARY KEY,
  host             text        NOT NULL,
  pid              integer     NOT NULL,
  -- Of taskq.
  version          text        NOT NULL,
  roles            text[]      NOT NULL,
  -- Null for every queue there is.
  queues           text[],
  slots            integer     NOT NULL,
  busy             integer     NOT NULL,
  -- Slots lost to handlers that are past their deadline.
  overrun          integer     NOT NULL,
  -- What runs now, bounded: [{id, type, queue, attempt}].
  running          jsonb       NOT NULL,
  -- The application's clock minus the database's, as the newest claim measured it; null before the first.
  clock_offset_ms  double precision,
  -- What was settled since the report before: {intervalMs, outcomes, waitMs, waited, ranMs, ran}.
  settled          jsonb       NOT NULL,
  started_at       timestamptz NOT NULL DEFAULT now(),
  seen_at          timestamptz NOT NULL DEFAULT now()
)
WITH (
  -- Each report rewrites its row and no indexed column: with room on the page it is heap-only.
  fillfactor = 20,
  autovacuum_vacuum_scale_factor = 0.0,
  autovacuum_vacuum_threshold = 1000
);
