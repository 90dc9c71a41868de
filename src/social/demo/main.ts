import type { Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { Closing } from './closing.ts';
import { CRON_TYPES } from './cron.ts';
import { findings, holds, unfinished } from './evidence.ts';
import { startReplicas, Told } from './replicas.ts';
import { type DemoStores, startStores } from './stores.ts';
import { administer, buildTown, liveADay, TOWN } from './town.ts';

const POLL_MS = 100;
/** A slow machine is no failure; what hangs is one. */
const DONE_MS_MAX = 120_000;
/** Claims that the weights foresee of a hundred may differ by so many, since claims come in small batches. */
const SHARE_DIFFERENCE_MAX = 8;

export interface SocialDemoOptions {
  readonly out: Writable;
  /** Ends the demo early. */
  readonly signal?: AbortSignal;
}

/** By convention 128 + SIGINT. */
const EXIT_INTERRUPTED = 130;

/**
 * Runs the social app's story, and closes all that it started, however it ends.
 * @returns the exit code: 0 when all of it came true, 1 when not, 130 when `signal` ended it
 */
export async function runSocialDemo(options: SocialDemoOptions): Promise<number> {
  const { out, signal = new AbortController().signal } = options;
  const say = (text: string) => out.write(`${new Date().toISOString().slice(11, 23)}  ${text}\n`);
  const closing = new Closing();
  try {
    return await tell(say, closing, signal);
  } catch (error) {
    if (signal.aborted) return EXIT_INTERRUPTED;
    throw error;
  } finally {
    await closing.closeAll();
  }
}

async function tell(say: (text: string) => void, closing: Closing, signal: AbortSignal): Promise<0 | 1> {
  const stores = await startStores(say, closing);
  signal.throwIfAborted();
  const town = await buildTown(stores);
  await liveADay(stores, town);
  say(
    `in one transaction: ${TOWN.travelLogs} travel logs, ${TOWN.items} items and ${TOWN.locations} locations, ` +
      `and the ${await unfinished(stores.db)} tasks that follow from them`,
  );
  const told = new Told();
  await startReplicas(stores, told, closing);
  say('two replicas are up: weights critical 6, default 3, low 1; sixteen cron entries, here every 2 s');
  await untilDone(stores, told, signal);
  const shares = Object.entries(told.shares).map(([queue, claims]) => `${queue} ${claims}`);
  say(`of the first hundred claims: ${shares.join(', ')}`);
  told.forgetEntries();
  await administer(stores, town);
  say(`asked for: a sweep of ${TOWN.orphans} orphans, a replay, a forced reparse, and the delete of a stamp`);
  await untilDone(stores, told, signal);
  return report(stores, told, say);
}

/** Resolves once nothing is left to do, and every cron entry has done its work at least once. */
async function untilDone({ db }: DemoStores, told: Told, signal: AbortSignal): Promise<void> {
  const giveUp = AbortSignal.any([signal, AbortSignal.timeout(DONE_MS_MAX)]);
  while (!told.hasDoneEveryEntry || (await unfinished(db)) > 0) {
    await delay(POLL_MS, undefined, { signal: giveUp });
  }
}

async function report(stores: DemoStores, told: Told, say: (text: string) => void): Promise<0 | 1> {
  for (const [run, times] of [...told.runs].sort(([left], [right]) => (left < right ? -1 : 1))) {
    say(`${String(times).padStart(5)} × ${run}`);
  }
  for (const { type, error } of told.dead) say(`dead letter: ${type}: ${error}`);
  say(`${told.ticksTaken} ticks of ${CRON_TYPES.length} entries were taken by two replicas, each once`);
  const found = await findings(stores, told);
  for (const finding of found) {
    const mark = holds(finding) ? 'ok   ' : 'WRONG';
    const expected = holds(finding) ? '' : `, expected ${JSON.stringify(finding.expected)}`;
    say(`${mark} ${finding.what}: ${JSON.stringify(finding.found)}${expected}`);
  }
  const areShared = Object.entries({ critical: 60, default: 30, low: 10 }).every(
    ([queue, share]) => Math.abs((told.shares[queue] ?? 0) - share) <= SHARE_DIFFERENCE_MAX,
  );
  if (!areShared) say('WRONG the shares of the queues are not 6:3:1');
  return found.every(holds) && areShared ? 0 : 1;
}
