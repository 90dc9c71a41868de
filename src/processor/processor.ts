import { getEventListeners, setMaxListeners } from 'node:events';
import { CLOCK_OFFSET_WARN_MS, POLL_JITTER, THREAD_EXIT_MS_MAX } from '../domain/limits.ts';
import type { Observer, TaskFacts } from '../domain/observer.ts';
import type { HandlerRegistry } from '../domain/task-set.ts';
import { toError } from '../domain/thrown.ts';
import { type AppClock, sleep, type Timer, type Timers } from '../domain/time.ts';
import { claim } from '../statements/claim.ts';
import { discover } from '../statements/discover.ts';
import { type ReadLane, type WriteLane, writeLane } from '../statements/lanes.ts';
import { readClocks } from './deadline.ts';
import { leaseMsOf } from './heartbeats.ts';
import { QueueOrder, type QueueOrderOptions } from './queue-order.ts';
import type { RunMiddleware } from './run-middleware.ts';
import { RunningTasks } from './running-tasks.ts';
import { Settler } from './settler.ts';
import { SharedClaims } from './shared-claims.ts';
import { runSlot } from './slot.ts';
import { WakeChannel } from './wake.ts';

export interface ProcessorDeps {
  readonly registry: HandlerRegistry;
  readonly read: ReadLane;
  readonly write: WriteLane;
  readonly slots: number;
  /** Undefined for every queue there is. */
  readonly queues: readonly string[] | undefined;
  readonly queueOrder: QueueOrderOptions;
  readonly marginMs: number;
  readonly pollIntervalMs: number;
  readonly clock: AppClock;
  readonly timers: Timers;
  readonly observe: Observer;
  readonly middleware: readonly RunMiddleware[];
}

/** How a processor is to stop. Milliseconds. */
export interface StopOptions {
  /** How long running handlers may go on before their signal aborts. */
  readonly graceMs: number;
  /** How long they may take to return after that, before they are left behind. */
  readonly abortWaitMs: number;
}

/**
 * The engine of a replica: its slots, the one wake channel and the one ticker they share.
 * Holds no code for any task type.
 */
export class Processor {
  readonly #deps: ProcessorDeps;
  readonly #wake = new WakeChannel();
  readonly #running: RunningTasks;
  readonly #stopping = new AbortController();
  readonly #aborting = new AbortController();
  readonly #leaving = new AbortController();
  readonly #closing = new AbortController();
  #slots: Promise<void> | undefined;
  #ticker: Timer | undefined;
  #offsetWarned = false;

  constructor(deps: ProcessorDeps) {
    this.#deps = deps;
    this.#running = new RunningTasks(deps.clock);
    // A listener for each slot is no leak, however many slots there are.
    const controllers = [this.#stopping, this.#aborting, this.#leaving, this.#closing];
    for (const { signal } of controllers) setMaxListeners(0, signal);
  }

  start(): void {
    if (this.#slots !== undefined) return;
    const { registry, slots, write, observe, clock, timers, marginMs, middleware } = this.#deps;
    const settler = new Settler({ ...this.#deps, closing: this.#closing.signal });
    const shared = {
      claims: this.#sharedClaims(settler),
      wake: this.#wake,
      settler,
      registry,
      running: this.#running,
      write,
      clock,
      timers,
      marginMs,
      middleware,
      observe: this.#observeOffset(observe),
      stopping: this.#stopping.signal,
      aborting: this.#aborting.signal,
      leaving: this.#leaving.signal,
    };
    const keepRunning = async () => {
      while (!this.#stopping.signal.aborted) {
        try {
          await runSlot(shared);
        } catch (error) {
          // A bug, since a slot survives whatever the database does. The slot is not given up for it.
          observe({ kind: 'slot_failed', error: toError(error) });
          await sleep(timers, this.#deps.pollIntervalMs, this.#stopping.signal);
        }
      }
    };
    this.#slots = Promise.all(Array.from({ length: slots }, keepRunning)).then(() => undefined);
    this.#scheduleTick();
  }

  /** A wake from outside: releases one idle slot. */
  signal(): void {
    if (!this.#stopping.signal.aborted) this.#wake.signal();
  }

  /** Slots in all, running a handler now, and lost to handlers that are past their deadline. */
  status(): { slots: number; busy: number; overrun: number } {
    return {
      slots: this.#deps.slots,
      busy: this.#running.busy,
      overrun: this.#running.overruns().length,
    };
  }

  /** What runs now; a task may be there twice, an overrun handler beside its own re-run. */
  runningTasks(): TaskFacts[] {
    return this.#running.all();
  }

  /**
   * Claims no more, lets running handlers go on for the grace, aborts them, and releases their leases.
   * A handler that does not return by the end of the wait is left behind: its lease lapses by itself. One that
   * runs in a thread is ended then, and its lease released.
   */
  async stop(options: StopOptions): Promise<void> {
    this.#stopping.abort();
    this.#ticker?.cancel();
    const slots = this.#slots ?? Promise.resolve();
    const graceOver = await this.#within(slots, options.graceMs);
    if (graceOver) {
      this.#aborting.abort();
      if (await this.#within(slots, options.abortWaitMs)) {
        await this.#endThreads(slots);
        for (const task of this.#running.all()) this.#deps.observe({ kind: 'handler_abandoned', task });
      }
    }
    this.#closing.abort();
  }

  /** Handlers in threads are ended rather than left behind, so that their leases are released. */
  async #endThreads(slots: Promise<void>): Promise<void> {
    const threads = getEventListeners(this.#leaving.signal, 'abort').length;
    this.#leaving.abort();
    if (threads > 0) await this.#within(slots, THREAD_EXIT_MS_MAX);
  }

  /** Whether `ms` went by before the slots had ended. */
  async #within(slots: Promise<void>, ms: number): Promise<boolean> {
    const ended = new AbortController();
    const timedOut = sleep(this.#deps.timers, ms, ended.signal).then(() => !ended.signal.aborted);
    const finished = slots.then(() => {
      ended.abort();
      return false;
    });
    return Promise.race([finished, timedOut]);
  }

  // One ticker for all slots, and one slot for each tick: tickers of their own would stay in step for the life
  // of the process and make every slot query at once. Replicas are spread by the jitter.
  #scheduleTick(): void {
    const { timers, pollIntervalMs } = this.#deps;
    const intervalMs = pollIntervalMs * (1 + POLL_JITTER * (Math.random() * 2 - 1));
    this.#ticker = timers.after(intervalMs, () => {
      for (const { task, overMs } of this.#running.overruns()) {
        this.#deps.observe({ kind: 'handler_overrun', task, overMs });
      }
      this.#wake.signal();
      this.#scheduleTick();
    });
  }

  #sharedClaims(settler: Settler): SharedClaims {
    const { registry, read, write, queues, queueOrder, marginMs, clock, observe } = this.#deps;
    const known: Record<string, number> = {};
    const leaseMs: Record<string, number> = {};
    for (const [type, { definition, revision }] of registry) {
      known[type] = revision;
      leaseMs[type] = leaseMsOf(definition, marginMs);
    }
    return new SharedClaims({
      statements: {
        discover: (limit, from) => discover(read, { known, queues, limit, from }),
        // The clocks are read with the connection in hand: waiting for one is not part of the lease.
        claim: (ids, slots) =>
          write.executor.connection().execute(async (connection) => {
            const sentAt = readClocks(clock);
            const lane = writeLane(connection, write.schema);
            return { tasks: await claim(lane, { ids, known, leaseMs, marginMs, slots }), sentAt };
          }),
        dequeueUnderWay: () => settler.dequeueUnderWay(),
      },
      order: new QueueOrder(queueOrder),
      queues,
      clock,
      observe,
      stopping: this.#stopping.signal,
    });
  }

  /** Says once when the clocks differ by more than is healthy, and again after they have agreed. */
  #observeOffset(observe: Observer): Observer {
    return (event) => {
      observe(event);
      if (event.kind !== 'claimed') return;
      const isFar = Math.abs(event.clockOffsetMs) > CLOCK_OFFSET_WARN_MS;
      if (isFar && !this.#offsetWarned) observe({ kind: 'clock_offset', offsetMs: event.clockOffsetMs });
      this.#offsetWarned = isFar;
    };
  }
}
