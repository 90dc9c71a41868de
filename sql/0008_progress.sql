-- How far a sliced task has come, in units of its own: for people who look at it.
-- Runs with the chosen schema first on search_path.
-- Oldest code that works with it: 0.1.0, which neither reads nor writes it: a slice of an older worker moves the cursor
-- and leaves the progress as it was.

-- {done, total}, total absent when nobody knows it; null before the first slice that said so. Written with the cursor.
ALTER TABLE async_tasks ADD COLUMN progress jsonb;
