import { type App, createApp, type QueueEvent } from '../../index.ts';
import { createHandlers } from '../handlers/index.ts';
import { createServices } from '../services/wiring.ts';
import type { Closing } from './closing.ts';
import { CRON_TYPES, hurriedCron } from './cron.ts';
import type { DemoStores } from './stores.ts';

const WEIGHTS = { critical: 6, default: 3, low: 1 };
const SLOTS = 2;
/** Claims looked at for the shares: while these are made, every queue has due tasks. */
const SHARE_CLAIMS = 100;

/** What the replicas have told so far. */
export class Told {
  /** Of the first claims, by queue. */
  readonly shares: Record<string, number> = { critical: 0, default: 0, low: 0 };
  /** Runs by type and outcome. */
  readonly runs = new Map<string, number>();
  /** Types that became a dead letter, each with its error. */
  readonly dead: { readonly type: string; readonly error: string }[] = [];
  readonly ticks = new Set<string>();
  ticksTaken = 0;
  #claims = 0;
  readonly #succeeded = new Set<string>();

  readonly observe = (event: QueueEvent): void => {
    if (event.kind === 'claimed' && this.#claims < SHARE_CLAIMS) {
      this.#claims += 1;
      this.shares[event.task.queue] = (this.shares[event.task.queue] ?? 0) + 1;
    }
    if (event.kind === 'cron_enqueued') {
      this.ticksTaken += 1;
      this.ticks.add(`${event.entry} ${event.tick}`);
    }
    if (event.kind !== 'settled') return;
    const { type } = event.task;
    const key = `${type} ${event.outcome}`;
    this.runs.set(key, (this.runs.get(key) ?? 0) + 1);
    if (event.outcome === 'success') this.#succeeded.add(type);
    if (event.dead) this.dead.push({ type, error: event.error ?? '' });
  };

  /** From here on `hasDoneEveryEntry` is about what comes. */
  forgetEntries(): void {
    this.#succeeded.clear();
  }

  get hasDoneEveryEntry(): boolean {
    return CRON_TYPES.every((type) => this.#succeeded.has(type));
  }
}

/** Two replicas in this process, with the queues' weights and the cron list: as two pods would run. */
export async function startReplicas(stores: DemoStores, told: Told, closing: Closing): Promise<App[]> {
  const handlers = createHandlers(createServices(stores));
  const replicas = ['A', 'B'].map(() =>
    createApp({
      database: stores.postgres.connection(),
      handlers,
      cron: hurriedCron,
      queues: WEIGHTS,
      slots: SLOTS,
      observer: told.observe,
    }),
  );
  for (const replica of replicas) closing.defer(() => replica.stop());
  await Promise.all(replicas.map((replica) => replica.start()));
  return replicas;
}
