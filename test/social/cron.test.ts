import { createApp } from '../../src/index.ts';
import { openOperator } from '../../src/operator.ts';
import cron from '../../src/social/cron.ts';
import { createTestClock, drain } from '../../src/testing/index.ts';
import { ManualClock } from '../support/clock.ts';
import { EventLog } from '../support/replica.ts';
import { CRON_CASES, type CronType } from './support/cron-cases.ts';
import { describe, expect, onTestFinished, test, type World } from './support/social.ts';

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;

/** The design's table: every entry and its interval. */
const INTERVALS_MS: Readonly<Record<CronType, number>> = {
  'cron:message_expiry': 30 * SECOND_MS,
  'cron:status_update': 5 * MINUTE_MS,
  'cron:redis_sync': 5 * MINUTE_MS,
  'cron:moment_cleanup': 5 * MINUTE_MS,
  'cron:token_cleanup': HOUR_MS,
  'cron:account_suspension': 12 * HOUR_MS,
  'cron:purge': 24 * HOUR_MS,
  'cron:deactivated_acct_purge': 24 * HOUR_MS,
  'cron:moment_purge': 24 * HOUR_MS,
  'cron:challenge_archive': 24 * HOUR_MS,
  'cron:user_stats_refresh': MINUTE_MS,
  'cron:notification_purge': 24 * HOUR_MS,
  'cron:parsed_link_sweep': 24 * HOUR_MS,
  'cron:location_enrich_sweep': MINUTE_MS,
  'cron:location_embedded_count': 5 * MINUTE_MS,
  'cron:ranking_label_prune': 24 * HOUR_MS,
};

const TYPES = Object.keys(INTERVALS_MS) as CronType[];

async function operatorOf({ databaseUrl }: World) {
  const operator = await openOperator({ database: databaseUrl });
  onTestFinished(() => operator.close());
  return operator;
}

describe('the cron list', () => {
  test('has the sixteen entries of the design, at their intervals', async ({ world }) => {
    const entries = await (await operatorOf(world)).listCron(cron);
    const intervals = entries.map(({ name, defined }) => {
      const [first, second] = defined?.next ?? [];
      return [name, (second?.getTime() ?? 0) - (first?.getTime() ?? 0)];
    });
    expect(Object.fromEntries(intervals)).toEqual(INTERVALS_MS);
  });

  test.for(TYPES)('what the entry %s enqueues does its work', async (type, { world }) => {
    const check = await CRON_CASES[type](world);
    const { id, status } = await (await operatorOf(world)).runCron(cron, type);
    expect(status).toBe('enqueued');
    const { db, handlers } = world;
    const runs = await drain({ db, handlers, until: (run) => run.id === id });
    expect(runs.map(({ type: ran, outcome }) => ({ ran, outcome }))).toEqual([
      { ran: type, outcome: 'success' },
    ]);
    await check();
  });

  test.for(TYPES)(
    'a finished %s is kept for a day, and a failing one runs four times',
    async (type, { world }) => {
      const operator = await operatorOf(world);
      const { id } = await operator.runCron(cron, type);
      const [task] = await world.waiting();
      expect(task).toMatchObject({ id, maxAttempts: 4 });
      await drain({ db: world.db, handlers: world.handlers, until: (run) => run.id === id });
      const kept = await operator.listCompleted({ limit: 10 });
      expect(kept.map((record) => record.type)).toEqual([type]);
      const [record] = kept;
      const keptMs = (record?.keepUntil.getTime() ?? 0) - (record?.completedAt.getTime() ?? 0);
      expect(Math.round(keptMs / HOUR_MS)).toBe(24);
    },
  );

  test('at a tick of all sixteen, two replicas enqueue one task of each', async ({ world }) => {
    const time = await createTestClock(world.databaseUrl);
    await time.set('2027-01-14T23:59:59Z');
    const replicas = [];
    for (let count = 0; count < 2; count += 1) {
      const events = new EventLog();
      const clock = new ManualClock({ wall: 0 });
      const { handlers } = world;
      const app = createApp({
        database: time.connection,
        handlers,
        cron,
        roles: ['cron'],
        clock,
        timers: clock,
        observer: events.observe,
      });
      onTestFinished(() => app.stop());
      await app.start();
      await events.first('cron_looked');
      replicas.push({ events, clock });
    }
    await time.set('2027-01-15T00:00:01Z');
    const looked = replicas.map(({ events }) => events.next('cron_looked'));
    for (const { clock } of replicas) clock.advance(MINUTE_MS);
    await Promise.all(looked);
    const tasks = await world.waiting();
    expect(tasks.map(({ type }) => type).sort()).toEqual([...TYPES].sort());
  });
});
