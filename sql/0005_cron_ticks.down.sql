DROP TABLE async_cron_ticks;
