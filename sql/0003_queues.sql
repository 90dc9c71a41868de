-- What an operator has said about queues. A queue without a row is served with the weight that the replicas are
-- configured with, and is not paused: rows are made by `taskq queue`, never by an enqueue.
-- Runs with the chosen schema first on search_path.
-- Oldest code that works with it: 0.1.0, which does not read it: an older replica goes on serving a paused queue.

CREATE TABLE async_queues (
  name        text        PRIMARY KEY CHECK (name <> ''),
  -- Its share of the claims beside the other queues' that have due tasks; null for what the replicas are configured with.
  weight      integer     CHECK (weight BETWEEN 1 AND 1000),
  -- Since when nothing is claimed from it; null when it is served. What runs, runs on.
  paused_at   timestamptz,
  changed_at  timestamptz NOT NULL DEFAULT now()
);
