import path from 'node:path';
import type { Kysely } from 'kysely';
import { sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { makeProject, REPOSITORY } from '../codegen/project.ts';
import { type Started, start, taskq } from '../support/cli.ts';
import type { TestDatabase } from '../support/databases.ts';
import { expect } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';

// The night that docs/runbook.md walks through. A deploy has left the queue `mail` out of the list of queues of the
// workers; `low` was paused in the evening; a type was removed from the code while tasks of it waited; a mail server
// was away for a while; and one worker was killed.

const TASKS = `
import { defineTask } from 'taskq';
import { z } from 'zod';

export const report = defineTask({ type: 'report', payload: z.object({ month: z.string() }), ceiling: '10m' });
export const sendMail = defineTask({
  type: 'send_mail', queue: 'mail', payload: z.object({ to: z.string() }), ceiling: '1m', maxAttempts: 5,
});
export const cleanUp = defineTask({ type: 'clean_up', queue: 'low', payload: z.object({}), ceiling: '1m' });
`;

const HANDLERS = `
import { defineHandlers } from '../generated/tasks.ts';

export default defineHandlers({
  report: (_payload, { signal }) =>
    new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
  send_mail: () => 'done',
  clean_up: () => 'done',
});
`;

const CRON = `
import { defineCron } from '../generated/tasks.ts';

export default defineCron([{ name: 'nightly', schedule: '0 2 * * *', task: 'clean_up', payload: {} }]);
`;

const CONFIG = `
export default {
  definitions: ['src/tasks.ts'],
  out: 'generated',
  handlers: 'src/handlers.ts',
  cron: 'src/cron.ts',
  queues: ['default', 'low'],
};
`;

export interface Incident {
  readonly project: string;
  readonly worker: Started;
  /** Where the worker serves its metrics. */
  readonly metricsUrl: string;
}

/** Makes the state of the night, with a worker of it that runs. */
export async function startIncident(database: TestDatabase, db: Kysely<DB>): Promise<Incident> {
  const project = await makeProject({
    'tsconfig.json': JSON.stringify({
      compilerOptions: { module: 'NodeNext', paths: { taskq: [path.join(REPOSITORY, 'dist/src/index.js')] } },
    }),
    'package.json': JSON.stringify({ name: 'shop', type: 'module' }),
    'taskq.config.ts': CONFIG,
    'src/tasks.ts': TASKS,
    'src/handlers.ts': HANDLERS,
    'src/cron.ts': CRON,
  });
  const env = { DATABASE_URL: database.url };
  const generated = await taskq(['codegen', '--no-database-types'], { cwd: project, env });
  expect(generated).toMatchObject({ code: 0 });
  await insertRows(db);
  const worker = start(['work', '--metrics-port', '0', '--roles', 'processor'], { cwd: project, env });
  const [, metricsUrl = ''] = await worker.until(/"url":"(http:[^"]+)"/);
  await worker.until(/listening for wakes/);
  await isRunning(db);
  // The delay of the event loop is measured once a second, so a scrape before the first time has none.
  await waitFor(async () => {
    const scrape = await (await fetch(`${metricsUrl}/metrics`)).text();
    return /^taskq_event_loop_delay_seconds \d/m.test(scrape);
  });
  return { project, worker, metricsUrl };
}

async function insertRows(db: Kysely<DB>): Promise<void> {
  const minutesAgo = (minutes: number) => sql<Date>`now() - make_interval(mins => ${minutes}::int)`;
  const common = { payload_revision: 1 };
  // Ids in this order: the page names them.
  await db
    .insertInto('async_tasks')
    .values([
      { ...common, task_type: 'report', payload: '{"month": "2026-10"}', run_at: minutesAgo(1) },
      ...[2, 3].map((id) => ({
        ...common,
        task_type: 'send_mail',
        queue: 'mail',
        payload: JSON.stringify({ to: `customer-${id}@example.com` }),
        attempt_count: 5,
        max_attempts: 5,
        run_at: minutesAgo(150),
        last_attempted_at: minutesAgo(150),
        last_error: 'connect ECONNREFUSED 10.0.0.5:25',
        errors: JSON.stringify([
          {
            at: '2026-11-30T00:31:00.000Z',
            attempt: 5,
            outcome: 'failure',
            message: 'connect ECONNREFUSED 10.0.0.5:25',
          },
        ]),
      })),
      // Its worker was killed; nobody serves its queue any more.
      {
        ...common,
        task_type: 'send_mail',
        queue: 'mail',
        payload: '{"to": "customer-4@example.com"}',
        attempt_count: 1,
        run_at: minutesAgo(45),
        lease_token: sql<string>`gen_random_uuid()`,
        lease_expires_at: minutesAgo(40),
        last_attempted_at: minutesAgo(45),
      },
    ])
    .execute();
  await sql`insert into ${sql.table('taskq.async_tasks')} (task_type, queue, payload, payload_revision, run_at)
    select 'send_mail', 'mail', '{"to": "customer@example.com"}'::jsonb, 1, now() - make_interval(secs => 2400 - n * 5)
    from generate_series(1, 412) n
    union all
    select 'clean_up', 'low', '{}', 1, now() - make_interval(mins => 60 + n) from generate_series(1, 18) n
    union all
    select 'import_feed', 'default', '{}', 1, now() - make_interval(mins => 30 + n) from generate_series(1, 3) n`.execute(
    db,
  );
  await sql`insert into ${sql.table('taskq.async_queues')} (name, paused_at)
    values ('low', now() - interval '6 hours')`.execute(db);
}

async function isRunning(db: Kysely<DB>): Promise<void> {
  await expect
    .poll(async () => {
      const { lease_token } = await db
        .selectFrom('async_tasks')
        .where('id', '=', '1')
        .select('lease_token')
        .executeTakeFirstOrThrow();
      return lease_token;
    })
    .not.toBeNull();
}
