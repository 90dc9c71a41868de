import type { FromWorker } from './worker-messages.ts';

type Claimed = Extract<FromWorker, { kind: 'claimed' }>;
type Settled = Extract<FromWorker, { kind: 'settled' }>;

/** A report about a task, with who sent it and when it came in. */
export type TaskEvent = (Claimed | Settled) & { readonly worker: string; readonly at: number };

/** What the workers reported about one task, in the order in which it came in. */
export interface TaskHistory {
  readonly id: string;
  readonly claims: (TaskEvent & Claimed)[];
  readonly settlements: (TaskEvent & Settled)[];
}

/** Everything that the workers reported about tasks. */
export class TaskEvents {
  readonly #histories = new Map<string, TaskHistory>();
  readonly #watchers = new Set<(event: TaskEvent) => void>();
  readonly #waits = new Set<(reason: Error) => void>();
  settledCount = 0;

  get histories(): ReadonlyMap<string, TaskHistory> {
    return this.#histories;
  }

  of(id: string): TaskHistory {
    return this.#histories.get(id) ?? { id, claims: [], settlements: [] };
  }

  record(event: TaskEvent): void {
    const history = this.of(event.id);
    this.#histories.set(event.id, history);
    if (event.kind === 'claimed') history.claims.push(event);
    else history.settlements.push(event);
    if (event.kind === 'settled') this.settledCount += 1;
    for (const watch of this.#watchers) watch(event);
  }

  /** Calls `watch` at every event from now on. */
  watch(watch: (event: TaskEvent) => void): () => void {
    this.#watchers.add(watch);
    return () => this.#watchers.delete(watch);
  }

  /**
   * The first answer of `look` that is not undefined: looked for now and after every event.
   * @throws Error naming `what` after `withinMs`, or when the events are closed
   */
  until<Answer>(look: () => Answer | undefined, what: string, withinMs: number): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const end = () => {
        clearTimeout(timer);
        unwatch();
        this.#waits.delete(giveUp);
      };
      const giveUp = (reason: Error) => {
        end();
        reject(reason);
      };
      const attempt = () => {
        const answer = look();
        if (answer === undefined) return;
        end();
        resolve(answer);
      };
      const inVain = () => giveUp(new Error(`waited ${withinMs} ms in vain for: ${what}`));
      const timer = setTimeout(inVain, withinMs);
      const unwatch = this.watch(attempt);
      this.#waits.add(giveUp);
      attempt();
    });
  }

  /** No more events: whoever waits for one is told so. */
  close(): void {
    for (const giveUp of [...this.#waits]) giveUp(new Error('the demo was stopped'));
  }
}
