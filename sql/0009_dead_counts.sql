-- For the gauge of dead letters: the newest of each type and queue, without a look at the others, however many.
-- Runs with the chosen schema first on search_path.
-- Oldest code that works with it: 0.1.0, which has no use for it.

-- By run_at, the moment that the last attempt was due, or would be: a claim does not change it, so claims stay heap-only.
-- A task on its final attempt is among the newest of its type, which is how the gauge of running tasks finds it.
CREATE INDEX async_tasks_exhausted_type ON async_tasks (task_type, queue, run_at) WHERE exhausted;
