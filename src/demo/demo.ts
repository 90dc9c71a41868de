import { setTimeout as delay } from 'node:timers/promises';
import { bringBack } from './comeback.ts';
import { readEdges, readLedger, readPlatformState, readRemaining } from './evidence.ts';
import type { Platform } from './platform.ts';
import { type DemoReport, judge, problemsOf, type SweepOutcome } from './report.ts';
import { type Story, seconds } from './story.ts';
import type { Sweep } from './sweep.ts';
import { startTraffic, type TrafficCounts } from './traffic.ts';
import { chooseVictim, crashMidTask, type Takeover, type Victim } from './worker-crash.ts';

const TRAFFIC_MS = 8_000;
/** The crash comes while requests come in. */
const CRASH_AFTER_MS = 1_000;
const PROGRESS_EVERY_MS = 1_000;
const DRAIN_POLL_MS = 100;
/** A busy machine may make a task run into its ceiling and back off once. */
const DRAIN_MS_MAX = 45_000;
/** A worker reports a settlement right after it is committed; the report may still be on its way. */
const REPORTS_MS_MAX = 5_000;

/** Runs the traffic, crashes a worker, sweeps, waits for the drain, and reports. */
export async function runDemo(platform: Platform, story: Story, signal: AbortSignal): Promise<DemoReport> {
  const startedAt = performance.now();
  await buildGraph(platform, story);
  const { counts, takeover, victim } = await runTraffic(platform, story, signal);
  const lookAtPrefixes = await bringBack(platform, victim, story, signal);
  const sweep = await runSweep(platform, story, signal);
  const comeback = await lookAtPrefixes();
  const verdict = await collect(platform, new Set([takeover.killedWorker]));
  const state = await readPlatformState(platform.stores, signal);
  const { id: _, ...input } = platform.organisation;
  const tookMs = Math.round(performance.now() - startedAt);
  const report = { ...verdict, input, requests: counts, takeover, comeback, sweep, platform: state, tookMs };
  return { ok: problemsOf(report).length === 0, ...report };
}

/** The tasks of the load itself: the first that the workers do. */
async function buildGraph(platform: Platform, story: Story): Promise<void> {
  const startedAt = performance.now();
  const drained = await untilDrained(platform, 'all');
  const { published } = await readEdges(platform.stores.db);
  story.say(`${drained}; after ${seconds(performance.now() - startedAt)} the graph has ${published} edges`);
}

async function runTraffic(
  platform: Platform,
  story: Story,
  signal: AbortSignal,
): Promise<{ counts: TrafficCounts; takeover: Takeover; victim: Victim }> {
  const { stores, settings, service, events, workers } = platform;
  const victim = await chooseVictim(stores.db, stores.explore);
  story.chapter('Requests change stacks; what follows from them is enqueued in the same transactions');
  const traffic = startTraffic({
    serviceUrl: service.url,
    durationMs: TRAFFIC_MS,
    except: new Set([victim.id]),
    signal,
  });
  const progress = tellProgress(platform, traffic.counts, story);
  const scene = {
    explore: stores.explore,
    connection: settings.explore,
    serviceUrl: service.url,
    events,
    workers,
    story,
  };
  const crash = delay(CRASH_AFTER_MS, undefined, { signal }).then(() => crashMidTask(scene, victim));
  try {
    // Both are awaited together: one that fails must not leave the other's failure unheard.
    const [takeover] = await Promise.all([
      crash,
      traffic.done.then(() => sayRequests(traffic.counts, story)),
    ]);
    return { counts: traffic.counts, takeover, victim };
  } finally {
    clearInterval(progress);
  }
}

/** The nightly sweep, twice: the second finds the rebuilds of the first under way and adds none. */
async function runSweep(platform: Platform, story: Story, signal: AbortSignal): Promise<SweepOutcome> {
  const { stores, service, events } = platform;
  story.chapter('A sweep over the fleet rebuilds graph and index of every organisation, in slices');
  story.say(await untilDrained(platform, 'due'));
  const { missing, surplus } = await readEdges(stores.db);
  story.say(
    `stacks that others depend on were deleted, or came back: ${missing} edges are missing, ${surplus} lead to ` +
      'deleted stacks',
  );
  const sweep = async () =>
    (await (await fetch(`${service.url}/sweep`, { method: 'POST', signal })).json()) as Sweep;
  const first = await sweep();
  const second = await sweep();
  const rebuilds = first.tasks.filter(({ type }) => type.endsWith('_rebuild'));
  story.say(
    `a sweep enqueued ${rebuilds.map(({ type, id }) => `${type} ${id}`).join(' and ')}; a second one found ` +
      `${second.underWay} under way and added none`,
  );
  story.say(await untilDrained(platform, 'all'));
  const slices = rebuilds.map(({ type, id }) => ({ type, slices: events.of(id).settlements.length }));
  for (const each of slices) story.say(`${each.type} ran in ${each.slices} slices, each a claim of its own`);
  return {
    rebuilds: rebuilds.length,
    underWay: second.underWay,
    slices: slices.reduce((sum, each) => sum + each.slices, 0),
    edgesMended: missing + surplus,
  };
}

function tellProgress({ events, stores }: Platform, counts: TrafficCounts, story: Story): NodeJS.Timeout {
  let lastSaid = '';
  return setInterval(async () => {
    const waiting = (await readRemaining(stores.db).catch(() => [])).length;
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

/**
 * No event tells that the table is empty, so it is looked at: for all tasks, or for those that are due. Answers how it
 * was found, in a sentence.
 */
async function untilDrained({ stores }: Platform, which: 'all' | 'due'): Promise<string> {
  const startedAt = performance.now();
  for (;;) {
    const remaining = (await readRemaining(stores.db)).filter(({ due }) => due || which === 'all');
    const pending = remaining.filter(({ dead }) => !dead).length;
    if (remaining.length === 0)
      return which === 'all' ? 'drained: the queue is empty' : 'nothing due is left';
    if (pending === 0) return `drained, but for ${remaining.length} dead letters`;
    if (performance.now() - startedAt > DRAIN_MS_MAX)
      return `not drained after ${seconds(DRAIN_MS_MAX)}: ${pending} tasks are left`;
    await delay(DRAIN_POLL_MS);
  }
}

async function collect({ stores: { db }, events }: Platform, killedWorkers: ReadonlySet<string>) {
  const ledger = await readLedger(db);
  const remaining = await readRemaining(db);
  const look = () => judge({ ledger, remaining, histories: events.histories, killedWorkers });
  const complete = () => {
    const verdict = look();
    return verdict.invariant.holds ? verdict : undefined;
  };
  return events.until(complete, 'every report', REPORTS_MS_MAX).catch(look);
}
