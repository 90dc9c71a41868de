DROP TABLE async_replicas;
