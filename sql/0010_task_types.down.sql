DROP TABLE async_task_types;
