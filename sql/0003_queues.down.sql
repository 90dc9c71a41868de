DROP TABLE async_queues;
