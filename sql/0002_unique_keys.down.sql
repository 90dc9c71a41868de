-- Tasks stay, without their keys: what was unique no longer is.
DROP FUNCTION enqueue(text, jsonb, text, timestamptz, interval, integer, jsonb, integer, text, text, interval, text);
DROP TABLE async_task_keys;
DROP INDEX async_tasks_unique_key;
ALTER TABLE async_tasks DROP COLUMN unique_key;
