import pg from 'pg';

/** A pool whose connections may end at any time, also while the pool itself closes, without ending the process. */
export function openPool(config: pg.PoolConfig): pg.Pool {
  const pool = new pg.Pool(config);
  // Whoever uses a connection hears of its end as a failed query; these are for those that nobody uses.
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  return pool;
}
