-- What the workers have said about the task types they run: for tools that do not have the definitions at hand.
-- Runs with the chosen schema first on search_path.
-- Oldest code that works with it: 0.1.0, which neither reads nor writes it: of what only an older worker has run, no
-- payload is shown.

-- Written by each replica at its start, and read by operators' tools only: no enqueue and no claim looks at it.
CREATE TABLE async_task_types (
  task_type         text        NOT NULL,
  -- A row for each revision of the payload, since each has its secret fields where its own schema has them.
  payload_revision  integer     NOT NULL CHECK (payload_revision >= 1),
  -- Which fields of the payload, and of the cursor, are never shown: a graph that begins with its first node. Each is
  -- {"secret": true} or {"fields": {name: node}, "items": node of every other member}. Null for none.
  secrets           jsonb,
  cursor_secrets    jsonb,
  ceiling_ms        bigint      NOT NULL,
  max_attempts      integer     NOT NULL,
  -- When a replica that runs it was last started, to the hour.
  registered_at     timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (task_type, payload_revision)
);
