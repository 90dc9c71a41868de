DROP TABLE async_completed_tasks;
ALTER TABLE async_tasks DROP COLUMN ceiling_ms, DROP COLUMN retention_ms;
