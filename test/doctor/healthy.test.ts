import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import type { DB } from '../../generated/db.ts';
import { CHECKS, renderChecksTable } from '../../src/doctor/doctor.ts';
import { startEmbeddedPostgres } from '../../src/embedded/index.ts';
import { createCron } from '../../src/index.ts';
import { doctor } from '../../src/operator.ts';
import { test as replicaTest } from '../support/replica.ts';
import { migrateTemplate } from '../support/schema.ts';
import { recordStatements } from '../support/statements.ts';
import { enqueueMany, testTasks } from '../support/tasks.ts';
import { describe, expect, test } from '../support/test.ts';

const cron = createCron(testTasks, [{ name: 'often', schedule: '@every 1h', task: 'plain' }]);
const RUNS = 25;

replicaTest('a fresh database with a worker is in order, every check of it', async ({ startReplica }) => {
  const binaryPackage = process.env['TASKQ_TEST_POSTGRES_PACKAGE'];
  // Durable, as the servers of the other tests are not.
  const server = await startEmbeddedPostgres(binaryPackage ? { binaryPackage } : {});
  const db = new Kysely<DB>({
    dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: server.url() }) }),
  });
  try {
    await migrateTemplate(server.url());
    const { app, events } = await startReplica({
      database: server.url(),
      roles: ['processor', 'cron', 'prune'],
      cron,
    });
    await events.first('cron_looked');
    await db.transaction().execute((tx) =>
      enqueueMany(
        tx,
        'plain',
        Array.from({ length: RUNS }, () => ({})),
        { retention: '1h' },
      ),
    );
    await events.atLeast(RUNS, 'settled');
    const report = await doctor({ database: server.url(), tasks: testTasks, cron });
    expect(report.findings.filter(({ status }) => status !== 'ok')).toEqual([]);
    expect(report.findings.map(({ id }) => id)).toEqual(CHECKS.map(({ id }) => id));
    expect(report.counts).toEqual({ problem: 0, warning: 0, unknown: 0, ok: CHECKS.length });
    await app.stop();
  } finally {
    await db.destroy();
    await server.stop();
  }
});

test('everything that is asked of the tables is asked in transactions that cannot write', async ({
  database,
}) => {
  const sent = recordStatements();
  await doctor({ database: database.url, tasks: testTasks, cron });
  const texts = sent.all.map(({ text }) => text);
  const begun = texts.filter((text) => /^(begin|start transaction)/i.test(text) && text !== 'begin');
  expect(begun.length).toBeGreaterThan(CHECKS.length - 5);
  expect(begun.every((text) => text.includes('read only'))).toBe(true);
  expect(texts.filter((text) => /^(insert|update|delete|create|alter|drop|grant)/i.test(text))).toEqual([]);
});

describe('the checks', () => {
  test('have ids that are stable: unique, and in kebab case', () => {
    const ids = CHECKS.map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
    for (const id of ids) expect(id).toMatch(/^[a-z]+(-[a-z]+)*$/);
  });

  test('are listed in the documentation as the code has them', () => {
    const page = readFileSync(fileURLToPath(new URL('../../docs/doctor.md', import.meta.url)), 'utf8');
    const table = /<!-- checks:begin -->\n([\s\S]*?)\n<!-- checks:end -->/.exec(page)?.[1];
    expect(table, 'write what renderChecksTable() answers between the markers').toBe(renderChecksTable());
  });

  test('that there are not are refused', async ({ database }) => {
    await expect(doctor({ database: database.url, checks: ['pulse'] })).rejects.toMatchObject({
      code: 'OPTION_INVALID',
      message: expect.stringMatching(/^there is no check 'pulse'; there are primary-writable, /),
    });
  });
});
