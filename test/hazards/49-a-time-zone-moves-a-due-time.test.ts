import { sql } from 'kysely';
import type { TaskId } from '../../src/domain/ids.ts';
import { findDead } from '../../src/statements/dead.ts';
import { administer } from '../support/databases.ts';
import { test } from '../support/replica.ts';
import { backoffOf, readLaneOf } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { expect, inject } from '../support/test.ts';
import { startWorkerProcess, type WorkerProcess } from '../support/worker-process.ts';

// Hazard 49: due times without a zone are read in another zone than they were written in, so that tasks run hours
// early or late.

const PROCESS_ZONES = ['UTC', 'America/Los_Angeles', 'Asia/Kolkata', 'Pacific/Chatham'];
const DATABASE_ZONES = ['UTC', 'Asia/Kolkata', 'America/St_Johns'];
const CEILING_MS = 300_000;
const MINUTE_MS = 60_000;

const reportsOf = ({ said }: WorkerProcess) =>
  said.map((line) => JSON.parse(line) as Record<string, number & string>);

for (const databaseZone of DATABASE_ZONES) {
  test(`every way of naming a moment means that moment, from any zone, in a database on ${databaseZone}`, async ({
    database,
    db,
  }) => {
    // The style of dates is a session setting as well, and no less able to turn a day into a month.
    await administer(
      inject('serverUrl'),
      `alter database ${database.name} set timezone = '${databaseZone}'`,
      `alter database ${database.name} set datestyle = 'German, DMY'`,
    );
    const startedAt = Date.now();
    const workers = PROCESS_ZONES.map((zone) =>
      startWorkerProcess('zoned-worker.ts', { url: database.url, queue: zone }, { TZ: zone }),
    );

    for (const [n, worker] of workers.entries()) {
      const zone = PROCESS_ZONES[n];
      const { exitCode, stderr } = await worker.ended;
      expect({ exitCode, stderr }, zone).toEqual({ exitCode: 0, stderr: '' });
      const reports = reportsOf(worker);
      for (const { how, wanted, dueAt } of reports.filter((report) => 'wanted' in report)) {
        if (how !== 'delay') expect(dueAt, `${how} in ${zone}`).toBe(wanted);
        else expect(Math.abs(Number(dueAt) - Number(wanted)), `${how} in ${zone}`).toBeLessThan(MINUTE_MS);
      }
      const runs = reports.filter((report) => 'leftMs' in report);
      expect(runs).toHaveLength(5);
      for (const { enqueuedAgoMs, leftMs, startedEarlyByMs } of runs) {
        expect(startedEarlyByMs, zone).toBe(0);
        expect(enqueuedAgoMs, zone).toBeLessThan(MINUTE_MS);
        expect(enqueuedAgoMs, zone).toBeGreaterThanOrEqual(-1);
        expect(leftMs, zone).toBeGreaterThan(CEILING_MS - MINUTE_MS);
        expect(leftMs, zone).toBeLessThanOrEqual(CEILING_MS);
      }
      for (const { waitedMs } of worker.events.of('claimed')) expect(waitedMs, zone).toBeLessThan(MINUTE_MS);

      const failing = reports.find((report) => 'failing' in report)?.['failing'] as unknown as TaskId;
      expect(await backoffOf(db, failing), zone).toBe(15_000);
      const letter = await findDead(readLaneOf(db), failing);
      const at = letter?.errors[0]?.at ?? '';
      expect(at, zone).toMatch(/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/);
      for (const moment of [
        Date.parse(at),
        letter?.enqueuedAt.getTime(),
        letter?.lastAttemptedAt?.getTime(),
      ]) {
        expect(moment, zone).toBeGreaterThanOrEqual(startedAt - 1);
        expect(moment, zone).toBeLessThanOrEqual(Date.now());
      }
    }
  });
}

test('every column of time carries its zone, and a moment without an offset is refused', async ({ db }) => {
  const { rows } = await sql<{ type: string }>`
    select distinct data_type as type from information_schema.columns
    where table_schema = 'taskq' and table_name = 'async_tasks' and data_type ~ '^(timestamp|date|time)'`.execute(
    db,
  );
  expect(rows).toEqual([{ type: 'timestamp with time zone' }]);

  for (const runAt of ['2027-01-31T09:00:00', '2027-01-31 09:00:00Z', '2027-01-31', 'tomorrow', '']) {
    await expect(enqueue(db, 'plain', {}, { runAt }), runAt).rejects.toMatchObject({
      code: 'OPTION_INVALID',
    });
  }
});
