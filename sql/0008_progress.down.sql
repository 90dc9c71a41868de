ALTER TABLE async_tasks DROP COLUMN progress;
