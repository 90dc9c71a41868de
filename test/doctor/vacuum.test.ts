import { sql } from 'kysely';
import { judgeHorizon } from '../../src/doctor/vacuum.ts';
import { startEmbeddedPostgres } from '../../src/embedded/index.ts';
import { findingOf, findingsOf } from '../support/doctor.ts';
import { holdTransaction } from '../support/held-transaction.ts';
import { session } from '../support/migrate-process.ts';
import { startReplicaPair } from '../support/replica-pair.ts';
import { insertRows } from '../support/rows.ts';
import { migrateTemplate } from '../support/schema.ts';
import { describe, expect, onTestFinished, test } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';

describe('autovacuum', () => {
  test('switched off for a table is a problem, and its dead rows are a warning until it has been vacuumed', async ({
    database,
    db,
  }) => {
    await sql`alter table taskq.async_tasks set (autovacuum_enabled = off)`.execute(db);
    await insertRows(db, 11_000);
    await sql`delete from taskq.async_tasks`.execute(db);
    const look = () => findingsOf({ database: database.url });
    // The statistics follow their transactions at a distance.
    const findings = await waitFor(async () => {
      const found = await look();
      return found['dead-rows']?.status === 'ok' ? undefined : found;
    });
    expect(findings['autovacuum']).toMatchObject({
      status: 'problem',
      found: 'off for async_tasks',
      remedies: ['ALTER TABLE "taskq".async_tasks RESET (autovacuum_enabled);'],
    });
    expect(findings['dead-rows']).toMatchObject({
      status: 'warning',
      found: expect.stringMatching(
        /^async_tasks: 11000 dead rows beside 0 live ones \(autovacuum begins at 2000\)/,
      ),
    });
    await sql`vacuum taskq.async_tasks`.execute(db);
    await sql`alter table taskq.async_tasks reset (autovacuum_enabled)`.execute(db);
    await waitFor(async () => (await look())['dead-rows']?.status === 'ok');
    expect((await look())['autovacuum']?.status).toBe('ok');
  });

  test('switched off in the server is a problem', async () => {
    const server = await ownServer({ autovacuum: 'off' });
    expect(await findingOf('autovacuum', { database: server })).toMatchObject({
      status: 'problem',
      remedies: ['ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf();'],
    });
  });
});

describe('vacuum-horizon', () => {
  test('an old snapshot is named with its session, and ending it is the remedy', async ({ database, db }) => {
    await using held = await holdTransaction(db, 'repeatable read');
    const { rows } = await sql<{
      pid: number;
    }>`select pg_backend_pid() as pid, count(*) from taskq.async_tasks`.execute(held.tx);
    const pid = rows[0]?.pid;
    const young = await findingOf('vacuum-horizon', { database: database.url });
    expect(young).toMatchObject({ status: 'ok', found: expect.stringContaining(`pid ${pid} `) });
    const old = await findingOf('vacuum-horizon', { database: database.url, oldTransactionMs: 1 });
    expect(['warning', 'problem']).toContain(old.status);
    expect(old.found).toMatch(
      new RegExp(`^pid ${pid} of \\w+, idle in transaction, its transaction began .* ago$`),
    );
    expect(old.remedies).toEqual([`end it where it came from, or: SELECT pg_terminate_backend(${pid});`]);
    await held.release();
    const after = await findingOf('vacuum-horizon', { database: database.url, oldTransactionMs: 1 });
    expect(after).toMatchObject({ status: 'ok', found: 'nothing holds vacuum back' });
  });

  test('a prepared transaction that was forgotten is named, and rolling it back is the remedy', async () => {
    const url = await ownServer({ max_prepared_transactions: '2' });
    await using client = await session({ connectionString: url });
    await client.query('BEGIN');
    await client.query("INSERT INTO taskq.async_tasks (task_type, payload) VALUES ('plain', '{}')");
    await client.query("PREPARE TRANSACTION 'it''s forgotten'");
    const finding = await findingOf('vacuum-horizon', { database: url, oldTransactionMs: 1 });
    expect(finding.found).toMatch(/^prepared transaction it's forgotten of \w+, \S+ old$/);
    expect(finding.remedies).toEqual([
      "decide it where it came from, or: ROLLBACK PREPARED 'it''s forgotten';",
    ]);
    await client.query("ROLLBACK PREPARED 'it''s forgotten'");
    expect(await findingOf('vacuum-horizon', { database: url })).toMatchObject({ status: 'ok' });
  });

  test('of what has no age in time, a million transactions are a warning and twelve million a problem', () => {
    const holder = { name: 'old_standby', pid: null, role: null, application: null, ageMs: null } as const;
    const options = { oldTransactionMs: 300_000, seesAll: true, role: 'ada' };
    const judged = (kind: 'slot' | 'standby', transactions: number) =>
      judgeHorizon([{ ...holder, kind, transactions }], options);
    expect(judged('slot', 999_999)).toMatchObject({ status: 'ok' });
    expect(judged('slot', 1_000_000)).toMatchObject({
      status: 'warning',
      found: 'replication slot old_standby, unused, behind by 1000000 transactions',
      remedies: ["nobody reads from it; if nobody will: SELECT pg_drop_replication_slot('old_standby');"],
    });
    expect(judged('standby', 12_000_000)).toMatchObject({ status: 'problem' });
  });

  test('a session is a warning at the given age and a problem at twelve times that', () => {
    const holder = {
      kind: 'session',
      name: 'active',
      pid: 7,
      role: 'ada',
      application: 'report',
      transactions: 3,
    } as const;
    const options = { oldTransactionMs: 300_000, seesAll: true, role: 'ada' };
    const statusAt = (ageMs: number) => judgeHorizon([{ ...holder, ageMs }], options).status;
    expect([299_999, 300_000, 3_599_999, 3_600_000].map(statusAt)).toEqual([
      'ok',
      'warning',
      'warning',
      'problem',
    ]);
  });

  test('a standby with feedback is seen, and what its queries hold back', async () => {
    const pair = await startReplicaPair();
    onTestFinished(() => pair.stop());
    await migrateTemplate(pair.primary.url());
    await pair.caughtUp();
    await using client = await session({ connectionString: pair.replica.url() });
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await client.query('SELECT count(*) FROM taskq.async_tasks');
    const finding = await waitFor(async () => {
      const found = await findingOf('vacuum-horizon', { database: pair.primary.url() });
      return found.found.includes('standby') ? found : undefined;
    });
    expect(finding).toMatchObject({
      status: 'ok',
      found: expect.stringMatching(/^the oldest: standby \S+, behind by/),
    });
  });
});

/** A migrated database on a server with settings that only a start can change. */
async function ownServer(settings: Readonly<Record<string, string>>): Promise<string> {
  const binaryPackage = process.env['TASKQ_TEST_POSTGRES_PACKAGE'];
  const server = await startEmbeddedPostgres({
    durable: false,
    settings,
    ...(binaryPackage ? { binaryPackage } : {}),
  });
  onTestFinished(() => server.stop());
  await migrateTemplate(server.url());
  return server.url();
}
