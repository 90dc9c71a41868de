-- What one enqueue may say about its own task, and the record of finished tasks that somebody wants to keep.
-- Runs with the chosen schema first on search_path.
-- Oldest code that works with it: 0.1.0, which ignores it: an older worker runs a task to its type's ceiling,
-- and deletes what was to be kept.

-- A lower ceiling than the type's; null for the type's. The claim takes the shorter of the two.
ALTER TABLE async_tasks ADD COLUMN ceiling_ms bigint;
-- How long its record is kept once it is done; null for not at all.
ALTER TABLE async_tasks ADD COLUMN retention_ms bigint;

-- NOT VALID spares reading the table for columns that are all null; rows from now on are checked.
ALTER TABLE async_tasks ADD CONSTRAINT async_tasks_ceiling_is_positive CHECK (ceiling_ms > 0) NOT VALID;
ALTER TABLE async_tasks ADD CONSTRAINT async_tasks_retention_is_positive CHECK (retention_ms > 0) NOT VALID;

-- Written by the statement that deletes the task, under the same fence. A table of its own, so that the queue's stays
-- as small as the work that waits.
CREATE TABLE async_completed_tasks (
  -- The task's own.
  id                bigint      PRIMARY KEY,
  queue             text        NOT NULL,
  task_type         text        NOT NULL,
  payload           jsonb       NOT NULL,
  payload_revision  integer     NOT NULL,
  headers           jsonb       NOT NULL,
  -- What the handler said with context.result; null when it said nothing.
  result            jsonb,
  attempt_count     integer     NOT NULL,
  -- The failures before the run that succeeded.
  errors            jsonb       NOT NULL,
  created_at        timestamptz NOT NULL,
  -- When the run that succeeded was claimed.
  started_at        timestamptz,
  completed_at      timestamptz NOT NULL DEFAULT now(),
  -- Pruned after this.
  keep_until        timestamptz NOT NULL
)
WITH (
  autovacuum_vacuum_insert_scale_factor = 0.0,
  autovacuum_vacuum_insert_threshold = 20000,
  autovacuum_analyze_scale_factor = 0.0,
  autovacuum_analyze_threshold = 5000
);

CREATE INDEX async_completed_tasks_keep_until ON async_completed_tasks (keep_until);
-- For the counts: a few bytes for each record, read without the payloads that lie beside them.
CREATE INDEX async_completed_tasks_type ON async_completed_tasks (task_type, queue);
