import { setTimeout as delay } from 'node:timers/promises';
import { readLedger, readPlatformState, readRemaining } from './evidence.ts';
import type { Platform } from './platform.ts';
import { type DemoReport, judge, platformProblems } from './report.ts';
import { type Story, seconds } from './story.ts';
import { startTraffic, type TrafficCounts } from './traffic.ts';
import { chooseVictim, crashMidTask } from './worker-crash.ts';

const TRAFFIC_MS = 9_000;
/** The crash comes while requests come in. */
const CRASH_AFTER_MS = 1_500;
const PROGRESS_EVERY_MS = 1_000;
const DRAIN_POLL_MS = 100;
/** A busy machine may make a task run into its ceiling and back off once. */
const DRAIN_MS_MAX = 30_000;
/** A worker reports a settlement right after it is committed; the report may still be on its way. */
const REPORTS_MS_MAX = 5_000;

/** Runs the traffic, crashes a worker, waits for the drain, and reports. */
export async function runDemo(platform: Platform, story: Story, signal: AbortSignal): Promise<DemoReport> {
  const startedAt = performance.now();
  const { db, service, postgres, events, workers, organisation } = platform;
  await buildGraph(platform, story);
  const victim = await chooseVictim(db);
  story.chapter('Requests change stacks; what follows from them is enqueued in the same transactions');
  const traffic = startTraffic({
    serviceUrl: service.url,
    durationMs: TRAFFIC_MS,
    except: new Set([victim.id]),
    signal,
  });
  const progress = tellProgress(platform, traffic.counts, story);
  const scene = { db, connection: postgres.connection(), serviceUrl: service.url, events, workers, story };
  const crash = delay(CRASH_AFTER_MS, undefined, { signal }).then(() => crashMidTask(scene, victim));
  try {
    // Both are awaited together: one that fails must not leave the other's failure unheard.
    const [takeover] = await Promise.all([
      crash,
      traffic.done.then(() => sayRequests(traffic.counts, story)),
    ]);
    story.say(await untilDrained(platform));
    const verdict = await collect(platform, new Set([takeover.killedWorker]));
    const state = await readPlatformState(db);
    const isOk =
      verdict.invariant.holds && platformProblems(state).length === 0 && traffic.counts.failed === 0;
    const { id: _, ...input } = organisation;
    const tookMs = Math.round(performance.now() - startedAt);
    return { ok: isOk, ...verdict, input, requests: traffic.counts, takeover, platform: state, tookMs };
  } finally {
    clearInterval(progress);
  }
}

/** The tasks of the load itself: the first that the workers do. */
async function buildGraph(platform: Platform, story: Story): Promise<void> {
  const startedAt = performance.now();
  const drained = await untilDrained(platform);
  const { edges } = await readPlatformState(platform.db);
  story.say(
    `${drained}; after ${seconds(performance.now() - startedAt)} the graph has ${edges.published} edges`,
  );
}

function tellProgress({ events, db }: Platform, counts: TrafficCounts, story: Story): NodeJS.Timeout {
  let lastSaid = '';
  return setInterval(async () => {
    const waiting = (await readRemaining(db).catch(() => [])).length;
    const said =
      `${counts.sent} requests: ${counts.committed} committed, ${counts.rolledBack} rolled back; ` +
      `${events.settledCount} tasks settled, ${waiting} in the table`;
    if (said !== lastSaid) story.say(said);
    lastSaid = said;
  }, PROGRESS_EVERY_MS);
}

function sayRequests(counts: TrafficCounts, story: Story): void {
  story.say(
    `the traffic is over: ${counts.rolledBack} of ${counts.sent} requests were refused by a rule after they had ` +
      'enqueued; those tasks are rolled back with them',
  );
}

/** No event tells that the table is empty, so it is looked at. Answers how it was found, in a sentence. */
async function untilDrained({ db }: Platform): Promise<string> {
  const startedAt = performance.now();
  for (;;) {
    const remaining = await readRemaining(db);
    const pending = remaining.filter(({ dead }) => !dead).length;
    if (remaining.length === 0) return 'drained: the queue is empty';
    if (pending === 0) return `drained, but for ${remaining.length} dead letters`;
    if (performance.now() - startedAt > DRAIN_MS_MAX)
      return `not drained after ${seconds(DRAIN_MS_MAX)}: ${pending} tasks are left`;
    await delay(DRAIN_POLL_MS);
  }
}

async function collect({ db, events }: Platform, killedWorkers: ReadonlySet<string>) {
  const ledger = await readLedger(db);
  const remaining = await readRemaining(db);
  const look = () => judge({ ledger, remaining, histories: events.histories, killedWorkers });
  const complete = () => {
    const verdict = look();
    return verdict.invariant.holds ? verdict : undefined;
  };
  return events.until(complete, 'every report', REPORTS_MS_MAX).catch(look);
}
