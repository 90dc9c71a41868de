DROP TABLE async_audit;
