-- Which ticks of which cron entries were taken. Whoever inserts the row of a tick enqueues its task in the same
-- transaction: so there is one enqueue for an entry and tick, whatever the number, clocks and restarts of the replicas.
-- The row outlives the task, so a task that is done at once does not make room for a second one.
-- Runs with the chosen schema first on search_path.
-- Oldest code that works with it: 0.1.0, which has no cron.

CREATE TABLE async_cron_ticks (
  entry     text        NOT NULL CHECK (entry <> ''),
  -- The moment the schedule names, not the one at which it was taken. Of 'since', when the entry was first seen.
  tick      timestamptz NOT NULL,
  -- enqueued  this tick enqueued task_id
  -- skipped   a task of the entry was still live (task_id): nothing was enqueued
  -- since     no tick: from here on the entry has the schedule beside it, and nothing before was missed
  outcome   text        NOT NULL CHECK (outcome IN ('enqueued', 'skipped', 'since')),
  task_id   bigint,
  -- As written in the list of entries, its time zone included: a different one begins anew.
  schedule  text        NOT NULL,
  taken_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (entry, tick)
)
WITH (
  autovacuum_vacuum_scale_factor = 0.0,
  autovacuum_vacuum_threshold = 2000
);
