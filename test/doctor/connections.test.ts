import { createServer } from 'node:net';
import { systemClock, type WallMs } from '../../src/domain/time.ts';
import { doctor } from '../../src/operator.ts';
import { migrateUp } from '../../src/statements/migrate.ts';
import { administer, type Connection, urlOf } from '../support/databases.ts';
import { findingOf, findingsOf } from '../support/doctor.ts';
import { type PgBouncer, requirePgbouncer, startPgbouncer } from '../support/pgbouncer.ts';
import { startReplicaPair } from '../support/replica-pair.ts';
import { describe, expect, inject, onTestFinished, test } from '../support/test.ts';

describe('a pooler in transaction mode', () => {
  test('is a problem for LISTEN, unless the listen URL goes past it; all other checks work through it', async ({
    database,
    skip,
  }) => {
    await requirePgbouncer({ skip });
    const pooler = await startPgbouncer(database.connection);
    onTestFinished(() => pooler.stop());
    const through = await findingsOf({ database: pooler.url });
    expect(through['listen']).toMatchObject({
      status: 'problem',
      remedies: ['set DATABASE_URL_LISTEN to the primary itself, past the pooler'],
    });
    for (const id of ['schema-objects', 'indexes-used', 'backlog', 'timeouts', 'clock-offset'])
      expect(through[id]).toMatchObject({ status: 'ok' });
    const past = await findingsOf({ database: pooler.url, listenDatabase: database.url });
    expect(past['listen']).toMatchObject({
      status: 'ok',
      found: expect.stringMatching(/arrived after \d+ ms/),
    });
  });

  test('that lends a single connection is seen too', async ({ database, skip }) => {
    await requirePgbouncer({ skip });
    const pooler = await startPgbouncer(database.connection, { poolSize: 1 });
    onTestFinished(() => pooler.stop());
    expect(await findingOf('listen', { database: pooler.url })).toMatchObject({ status: 'problem' });
  });

  test('that loses prepared statements is a problem, unless they are switched off', async ({
    database,
    skip,
  }) => {
    await requirePgbouncer({ skip });
    const pooler = await startForgetful(database.connection);
    onTestFinished(() => pooler.stop());
    expect(await findingOf('prepared-statements', { database: pooler.url })).toMatchObject({
      status: 'problem',
      remedies: [expect.stringContaining('TASKQ_PREPARED_STATEMENTS=false')],
    });
    const off = { database: pooler.url, preparedStatements: false };
    expect(await findingOf('prepared-statements', off)).toMatchObject({ status: 'ok' });
  });
});

/** A pooler that loses prepared statements: PgBouncer 1.21 and newer carry them, unless told not to. */
async function startForgetful(upstream: Connection): Promise<PgBouncer> {
  const pooler = await startPgbouncer(upstream);
  const [major = 0, minor = 0] = pooler.version.split('.').map(Number);
  if (major === 1 && minor < 21) return pooler;
  await pooler.stop();
  return startPgbouncer(upstream, { settings: { max_prepared_statements: '0' } });
}

test('a listen URL that leads to another database is a problem', async ({ database }) => {
  const other = urlOf(database.url, 'postgres');
  expect(await findingOf('listen', { database: database.url, listenDatabase: other })).toMatchObject({
    status: 'problem',
    found: 'no notification arrived within 2s: tasks wait for the poll',
    remedies: ['check that DATABASE_URL_LISTEN and DATABASE_URL name the same database of the same server'],
  });
});

describe('the clock', () => {
  const shifted = (byMs: number) => ({
    monotonic: systemClock.monotonic,
    wall: () => (systemClock.wall() + byMs) as WallMs,
  });

  test.for([
    [0, 'ok', 'the database'],
    [10_000, 'warning', 'ahead of'],
    [-10_000, 'warning', 'behind'],
    [31_000, 'problem', 'ahead of'],
    [-31_000, 'problem', 'behind'],
  ] as const)('that is %i ms off is: %s', async ([byMs, status, direction], { database }) => {
    const finding = await findingOf('clock-offset', { database: database.url, clock: shifted(byMs) });
    expect(finding).toMatchObject({ status, found: expect.stringContaining(direction) });
  });

  test('is judged by the margin of the workers', async ({ database }) => {
    const options = { database: database.url, clock: shifted(10_000), leaseMarginMs: 5_000 };
    expect(await findingOf('clock-offset', options)).toMatchObject({ status: 'problem' });
  });
});

describe('the read lane', () => {
  test('that follows is in order; one that lags, is no standby or cannot be reached is not; a standby is no primary', async () => {
    const pair = await startReplicaPair();
    onTestFinished(() => pair.stop());
    await migrateUp(pair.primary.url(), {});
    await pair.caughtUp();
    const both = { database: pair.primary.url(), readDatabase: pair.replica.url() };
    const healthy = await findingsOf(both);
    expect(healthy['read-replica']).toMatchObject({
      status: 'ok',
      found: expect.stringMatching(/^a standby, behind by/),
    });
    expect(healthy['backlog']).toMatchObject({ status: 'ok' });

    await pair.pauseReplay();
    await administer(
      pair.primary.url(),
      "INSERT INTO taskq.async_tasks (task_type, payload) VALUES ('plain', '{}')",
    );
    const lagging = await findingOf('read-replica', both);
    expect(lagging).toMatchObject({
      status: 'warning',
      found: expect.stringMatching(/behind by \d+ bytes of log/),
    });
    await pair.resumeReplay();

    const swapped = await findingsOf({ database: pair.replica.url(), readDatabase: pair.primary.url() });
    expect(swapped['primary-writable']).toMatchObject({
      status: 'problem',
      found: 'the database is a standby: nothing can be claimed or enqueued',
    });
    expect(swapped['read-replica']).toMatchObject({
      status: 'warning',
      found: expect.stringContaining('no standby'),
    });

    await pair.replica.stop();
    expect(await findingOf('read-replica', both)).toMatchObject({ status: 'problem' });
  });
});

describe('a database that cannot be reached', () => {
  test('is one problem and nothing else', async () => {
    const report = await doctor({ database: 'postgres://ada:secret@127.0.0.1:1/nothing' });
    expect(report.counts).toEqual({ problem: 1, warning: 0, unknown: 0, ok: 0 });
    expect(report.findings).toMatchObject([
      {
        id: 'database-reachable',
        group: 'connections',
        status: 'problem',
        found: expect.stringContaining('ECONNREFUSED'),
      },
    ]);
    expect(JSON.stringify(report)).not.toContain('secret');
  });

  test('that does not exist is one too', async () => {
    const { findings } = await doctor({ database: urlOf(inject('serverUrl'), 'no_such_database') });
    expect(findings).toMatchObject([
      { id: 'database-reachable', found: expect.stringContaining('no_such_database') },
    ]);
  });
});

test('a check whose answer does not come is unknown after its time, and the others are made', async ({
  database,
}) => {
  // Takes connections and says nothing: LISTEN is all that needs it.
  const silent = createServer(() => undefined);
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void silent.close());
  const { port } = silent.address() as { port: number };
  const findings = await findingsOf({
    database: database.url,
    listenDatabase: `postgres://ada@127.0.0.1:${port}/silent`,
    checkMs: 500,
  });
  expect(findings['listen']).toMatchObject({ status: 'unknown', found: 'no answer within 1s' });
  expect(findings['schema-objects']).toMatchObject({ status: 'ok' });
});
