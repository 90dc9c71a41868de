-- Drops every task, waiting, running and dead.
DROP TABLE async_tasks;
