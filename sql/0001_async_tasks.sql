-- The one table of the queue: a row is a task, from enqueue until it is settled or pruned.
-- Runs with the chosen schema first on search_path, so that no name here is qualified.
-- Oldest code that works with it: 0.1.0 (the first).
--
-- What the columns mean together. All comparisons use the database's own now();
-- src/statements/predicates.ts is the only place where the code writes these conditions.
--
--   exhausted   retired, or attempt_count >= max_attempts: no claim may take it again
--   leased      lease_expires_at > now(): one worker holds it, and lease_token proves which
--   due         run_at <= now()
--   claimable   due, not leased, not exhausted, of a type and payload revision the replica knows
--   running     leased
--   dead        exhausted and not leased. A worker that dies on the final attempt writes nothing;
--               the row becomes dead by itself when the lease lapses.
--   live        not dead, pending likewise: waiting, backing off, or running
--
-- A claim stamps lease_token, lease_expires_at, last_attempted_at and burns an attempt. Every settle
-- statement matches lease_token, so a worker whose lease was taken over matches no row.
-- A finished task is deleted; a failed one keeps its row, with run_at pushed by the backoff.

CREATE TABLE async_tasks (
  id                bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue             text        NOT NULL DEFAULT 'default' CHECK (queue <> ''),
  task_type         text        NOT NULL CHECK (task_type <> ''),
  payload           jsonb       NOT NULL,
  payload_revision  integer     NOT NULL DEFAULT 1 CHECK (payload_revision >= 1),
  -- Where the next slice of a long task begins; null until the first one committed.
  cursor            jsonb,
  -- Small strings that travel with the task, such as the trace context of the enqueuing request.
  headers           jsonb       NOT NULL DEFAULT '{}',
  run_at            timestamptz NOT NULL DEFAULT now(),
  attempt_count     integer     NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
  max_attempts      integer     NOT NULL DEFAULT 20 CHECK (max_attempts >= 1),
  -- Set when a handler said that no retry can help: dead at once, with the true attempt_count kept.
  retired           boolean     NOT NULL DEFAULT false,
  lease_token       uuid,
  lease_expires_at  timestamptz,
  last_attempted_at timestamptz,
  last_error        text,
  -- The failures so far, oldest first, bounded: [{attempt, at, outcome, message, stack}].
  errors            jsonb       NOT NULL DEFAULT '[]',
  created_at        timestamptz NOT NULL DEFAULT now(),
  exhausted         boolean     NOT NULL GENERATED ALWAYS AS (retired OR attempt_count >= max_attempts) STORED,
  CONSTRAINT async_tasks_lease_is_whole CHECK ((lease_token IS NULL) = (lease_expires_at IS NULL))
)
WITH (
  -- Room on the page for the claim's new row version. No index and no index predicate names a column
  -- that an ordinary claim changes, so that update is heap-only: it touches no index and needs no vacuum.
  fillfactor = 70,
  -- A queue table is all churn: the defaults (a fifth of the table, with pauses) come far too late.
  autovacuum_vacuum_scale_factor = 0.0,
  autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_cost_delay = 0,
  autovacuum_vacuum_insert_scale_factor = 0.0,
  autovacuum_vacuum_insert_threshold = 20000,
  autovacuum_analyze_scale_factor = 0.0,
  autovacuum_analyze_threshold = 5000
);

-- Discovery: the oldest of each queue. `exhausted` rather than attempt_count stands in the predicate,
-- because attempt_count changes at every claim and would make every claim rewrite the index.
CREATE INDEX async_tasks_discovery ON async_tasks (queue, run_at, id) WHERE NOT exhausted;

-- Dead letters: listing, prune and the gauge. By id only; last_attempted_at changes at every claim.
CREATE INDEX async_tasks_exhausted ON async_tasks (id) WHERE exhausted;
