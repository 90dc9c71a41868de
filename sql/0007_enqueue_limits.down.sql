-- Tasks keep what they were enqueued with; only the function forgets its arguments.

-- Enqueues a task in the caller's transaction, by the rules of the TypeScript client: the row and the wake of an
-- idle worker exist exactly when that transaction commits. Answers the task's id and what became of the enqueue:
-- 'enqueued', 'existing' (the id is that of the task in the way) or 'replaced'.
--
--   queue            null: 'default'. The database does not know the queue of a definition.
--   run_at, delay    not before this moment, or this long from now; one of them at most
--   max_attempts     null: 20; from 1 to 1000
--   headers          an object of strings
--   payload_revision the revision of the payload's schema that this payload fits
--   unique_key       null: not unique. Any text, the empty one included; the task type is part of the key.
--   unique_while     what stands in the way: 'live' (a task that waits or runs), 'waiting' (one that waits) or
--                    'window' (an enqueue less than its unique_window ago, unless its task is a dead letter)
--   on_conflict      'skip', 'replace' (payload, revision and headers of a task that is not leased, and run_at
--                    if run_at or delay is given) or 'error'
--
-- Errors: 22023 for arguments that do not fit; TQ001, with on_conflict 'error', for a task in the way.
-- SECURITY DEFINER: a role with USAGE on the schema and EXECUTE on this function, and no other right, can enqueue.
CREATE FUNCTION enqueue(
  task_type        text,
  payload          jsonb,
  queue            text        DEFAULT NULL,
  run_at           timestamptz DEFAULT NULL,
  delay            interval    DEFAULT NULL,
  max_attempts     integer     DEFAULT NULL,
  headers          jsonb       DEFAULT '{}',
  payload_revision integer     DEFAULT 1,
  unique_key       text        DEFAULT NULL,
  unique_while     text        DEFAULT NULL,
  unique_window    interval    DEFAULT NULL,
  on_conflict      text        DEFAULT 'skip'
)
RETURNS TABLE (id bigint, status text)
LANGUAGE plpgsql
VOLATILE
SECURITY DEFINER
SET search_path FROM CURRENT
-- Every look-up goes by an index. A plan that was cached while the table was empty would read all of it.
SET enable_seqscan = off
AS $function$
#variable_conflict use_column
DECLARE
  -- Control characters and line breaks, which split log lines and tables.
  unprintable CONSTANT text     := '[\u0001-\u001f\u007f-\u009f\u2028\u2029]';
  name_length CONSTANT integer  := 200;
  century     CONSTANT interval := '36500 days';
  key_hash    bytea;
  -- The wall clock, not now(): a long transaction's own now() would still see leases that have lapsed since.
  judged_at   timestamptz;
  due_at      timestamptz;
  blocking_id bigint;
  -- Of the task in the way: 'waiting', 'leased', or null when it is gone and only its window still stands.
  blocking    text;
  is_due      boolean;
  must_wake   boolean := false;
  problem     text;
BEGIN
  problem := CASE
    WHEN enqueue.task_type IS NULL OR btrim(enqueue.task_type) = '' THEN 'task_type: expected a name'
    WHEN length(enqueue.task_type) > name_length THEN 'task_type: longer than 200 characters'
    WHEN enqueue.task_type ~ unprintable THEN 'task_type: control characters and line breaks are not allowed'
    WHEN btrim(enqueue.queue) = '' THEN 'queue: expected a name'
    WHEN length(enqueue.queue) > name_length THEN 'queue: longer than 200 characters'
    WHEN enqueue.queue ~ unprintable THEN 'queue: control characters and line breaks are not allowed'
    WHEN enqueue.payload IS NULL THEN 'payload: expected JSON; SQL''s null is none, JSON''s null is'
    WHEN enqueue.run_at IS NOT NULL AND enqueue.delay IS NOT NULL THEN 'run_at and delay: give one of them, not both'
    WHEN NOT isfinite(enqueue.run_at) OR enqueue.run_at < '1970-01-01 00:00:00+00'
      THEN 'run_at: expected a moment after 1970'
    WHEN NOT isfinite(enqueue.delay) OR enqueue.delay < '0' OR enqueue.delay > century
      THEN 'delay: expected a length of time from 0 to a century'
    WHEN enqueue.max_attempts NOT BETWEEN 1 AND 1000 THEN 'max_attempts: expected a number from 1 to 1000'
    WHEN enqueue.payload_revision IS NULL OR enqueue.payload_revision < 1
      THEN 'payload_revision: expected a number from 1 on'
    WHEN enqueue.headers IS NULL OR jsonb_typeof(enqueue.headers) <> 'object'
      OR jsonb_path_exists(enqueue.headers, 'strict $.* ? (@.type() != "string")') THEN 'headers: expected an object of strings'
    WHEN enqueue.unique_key IS NULL AND (enqueue.unique_while IS NOT NULL OR enqueue.unique_window IS NOT NULL)
      THEN 'unique_while and unique_window: give a unique_key too'
    WHEN enqueue.on_conflict IS NULL OR enqueue.on_conflict NOT IN ('skip', 'replace', 'error')
      THEN 'on_conflict: expected skip, replace or error'
    WHEN enqueue.unique_key IS NULL AND enqueue.on_conflict <> 'skip' THEN 'on_conflict: give a unique_key too'
    WHEN enqueue.unique_key IS NOT NULL
      AND (enqueue.unique_while IS NULL OR enqueue.unique_while NOT IN ('live', 'waiting', 'window'))
      THEN 'unique_while: say what stands in the way: live, waiting or window'
    WHEN (enqueue.unique_while = 'window') <> (enqueue.unique_window IS NOT NULL)
      THEN 'unique_window: give it with unique_while window, and only then'
    WHEN NOT isfinite(enqueue.unique_window) OR enqueue.unique_window <= '0' OR enqueue.unique_window > century
      THEN 'unique_window: expected a length of time above 0, up to a century'
  END;
  IF problem IS NOT NULL THEN
    RAISE EXCEPTION 'enqueue: %', problem USING ERRCODE = '22023';
  END IF;

  IF enqueue.unique_key IS NOT NULL THEN
    -- A task type holds no line break, so that no two pairs of type and key make one text.
    key_hash := sha256(convert_to(enqueue.task_type || E'\n' || enqueue.unique_key, 'UTF8'));
    LOOP
      -- Inserts the key or locks it. The condition keeps the lock from writing a new version; that only an enqueue
      -- that inserts a task writes one (below) is what fails a concurrent one with 40001 above READ COMMITTED.
      INSERT INTO async_task_keys AS k (key, enqueued_at) VALUES (key_hash, clock_timestamp())
        ON CONFLICT (key) DO UPDATE SET enqueued_at = k.enqueued_at WHERE false;
      judged_at := clock_timestamp();
      due_at := coalesce(enqueue.run_at, judged_at + enqueue.delay);
      blocking_id := NULL;
      -- Statements of its own, since each has a snapshot of its own: this one was taken after the lock.
      IF enqueue.unique_while = 'window' THEN
        SELECT k.task_id INTO blocking_id FROM async_task_keys AS k
          WHERE k.key = key_hash AND k.window_ends_at > judged_at;
        -- Not a join: a plan that was cached while the tables were small would read every task for it.
        SELECT CASE WHEN t.lease_expires_at > judged_at THEN 'leased' WHEN t.exhausted THEN 'dead' ELSE 'waiting' END
          INTO blocking FROM async_tasks AS t WHERE t.id = blocking_id;
        IF blocking = 'dead' THEN
          blocking_id := NULL;
        END IF;
      ELSE
        -- The one that waits before the one that runs: it is the one that can be replaced.
        SELECT t.id, CASE WHEN t.lease_expires_at > judged_at THEN 'leased' ELSE 'waiting' END
          INTO blocking_id, blocking
          FROM async_tasks AS t
          WHERE t.unique_key = key_hash
            AND (NOT t.exhausted OR t.lease_expires_at > judged_at)
            AND (enqueue.unique_while = 'live' OR (t.lease_expires_at > judged_at) IS NOT TRUE)
          ORDER BY (t.lease_expires_at > judged_at) IS TRUE, t.id DESC
          LIMIT 1;
      END IF;
      EXIT WHEN blocking_id IS NULL;

      id := blocking_id;
      status := 'existing';
      IF enqueue.on_conflict = 'error' THEN
        RAISE EXCEPTION 'enqueue: task % stands in the way of another % with its key', blocking_id, enqueue.task_type
          USING ERRCODE = 'TQ001', DETAIL = blocking_id::text;
      ELSIF enqueue.on_conflict = 'replace' AND blocking = 'waiting' THEN
        -- Cast, `exhausted` is not the predicate of the index of discovery: a plan that was cached while the table
        -- was small would walk that index for one id. So below.
        -- A worker whose lease has lapsed loses its token with it: finishing late, it would delete the new payload.
        UPDATE async_tasks AS t
          SET payload = enqueue.payload, payload_revision = enqueue.payload_revision, headers = enqueue.headers,
              run_at = coalesce(due_at, t.run_at), lease_token = NULL, lease_expires_at = NULL
          WHERE t.id = blocking_id AND t.exhausted::integer = 0 AND (t.lease_expires_at > judged_at) IS NOT TRUE
          RETURNING t.run_at <= judged_at INTO is_due;
        -- Claimed, or finished, between the judging and this: judge again.
        CONTINUE WHEN NOT FOUND;
        status := 'replaced';
        must_wake := is_due;
      ELSIF enqueue.unique_while = 'waiting' THEN
        -- The run of the task in the way must see what this transaction has changed, or the change has no run at
        -- all. So it is not claimed before this commits; nor is it finished by a worker whose lease has lapsed.
        UPDATE async_tasks AS t SET lease_token = NULL, lease_expires_at = NULL
          WHERE t.id = blocking_id AND t.lease_token IS NOT NULL
            AND t.exhausted::integer = 0 AND (t.lease_expires_at > judged_at) IS NOT TRUE;
        SELECT t.run_at <= judged_at INTO is_due FROM async_tasks AS t
          WHERE t.id = blocking_id AND t.exhausted::integer = 0 AND (t.lease_expires_at > judged_at) IS NOT TRUE
          FOR KEY SHARE;
        CONTINUE WHEN NOT FOUND;
        -- Workers that were woken for it meanwhile have passed it by.
        must_wake := is_due;
      END IF;
      EXIT;
    END LOOP;
  END IF;

  IF blocking_id IS NULL THEN
    INSERT INTO async_tasks AS t (queue, task_type, payload, payload_revision, headers, run_at, max_attempts, unique_key)
      VALUES (coalesce(enqueue.queue, 'default'), enqueue.task_type, enqueue.payload, enqueue.payload_revision,
              enqueue.headers, coalesce(enqueue.run_at, clock_timestamp() + enqueue.delay, now()),
              coalesce(enqueue.max_attempts, 20), key_hash)
      RETURNING t.id, t.run_at <= clock_timestamp() INTO id, must_wake;
    status := 'enqueued';
    IF key_hash IS NOT NULL THEN
      UPDATE async_task_keys AS k
        SET task_id = enqueue.id, enqueued_at = judged_at,
            window_ends_at = coalesce(judged_at + enqueue.unique_window, k.window_ends_at)
        WHERE k.key = key_hash;
    END IF;
  END IF;

  IF must_wake THEN
    -- The channel is the client's: a schema's name that would not fit, or needs quoting, is hashed.
    PERFORM pg_notify(
      CASE WHEN current_schema() ~ '^[a-z0-9_]+$' AND octet_length(current_schema()) <= 63 - octet_length('async_task_pending_')
        THEN 'async_task_pending_' || current_schema()
        ELSE 'async_task_pending#' || left(encode(sha256(convert_to(current_schema(), 'UTF8')), 'hex'), 32)
      END, '');
  END IF;
  RETURN NEXT;
END
$function$;

-- As on the way up: the same owner, the same grants.
DO $grants$
DECLARE
  old CONSTANT regprocedure :=
    'enqueue(text, jsonb, text, timestamptz, interval, integer, jsonb, integer, text, text, interval, text, interval, interval, text)';
  new CONSTANT regprocedure :=
    'enqueue(text, jsonb, text, timestamptz, interval, integer, jsonb, integer, text, text, interval, text)';
  owner oid;
  granted record;
BEGIN
  SELECT proowner INTO owner FROM pg_proc WHERE oid = old;
  IF owner <> (SELECT proowner FROM pg_proc WHERE oid = new) THEN
    EXECUTE format('ALTER FUNCTION %s OWNER TO %s', new, owner::regrole);
  END IF;
  -- What default privileges have just granted, PUBLIC's among them, the old function may have been denied.
  FOR granted IN
    SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END AS role
      FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner)))
      WHERE pg_proc.oid = new AND grantee <> proowner
  LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %s', new, granted.role);
  END LOOP;
  FOR granted IN
    SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END AS role,
           CASE WHEN bool_or(is_grantable) THEN ' WITH GRANT OPTION' ELSE '' END AS options
      FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner)))
      WHERE pg_proc.oid = old AND grantee <> proowner
      GROUP BY 1
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s%s', new, granted.role, granted.options);
  END LOOP;
END
$grants$;

-- After the grants are copied. Both at once would be ambiguous to callers: none sees that, before the commit.
DROP FUNCTION enqueue(
  text, jsonb, text, timestamptz, interval, integer, jsonb, integer, text, text, interval, text, interval, interval, text
);
