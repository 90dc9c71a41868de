-- Who did what to the queue by hand, written in the transaction that does it. Nothing that workers do stands here.
-- Runs with the chosen schema first on search_path.
-- Oldest code that works with it: 0.1.0, which writes nothing here.

CREATE TABLE async_audit (
  id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- As the command line or the admin API names whoever acts: 'cli:anna', 'api:on-call'.
  actor     text        NOT NULL CHECK (actor <> ''),
  -- dead.replay, dead.drop, queue.pause, queue.resume, queue.weight, cron.run, ...
  action    text        NOT NULL CHECK (action <> ''),
  -- What it was done to: a task's id, a queue's or an entry's name; null for many at once, which detail describes.
  subject   text,
  -- How: the filter of a bulk action with what became of it, the old and the new weight. Never a payload.
  detail    jsonb       NOT NULL DEFAULT '{}'
);
