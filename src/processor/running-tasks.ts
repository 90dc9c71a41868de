import type { TaskFacts } from '../domain/observer.ts';
import type { AppClock, MonotonicMs } from '../domain/time.ts';

/** One run in progress, as the slot sees it. */
export interface RunEntry {
  /** The deadline has passed and the handler has not returned. */
  overrun(): void;
  /** The handler has returned and its task is settled. */
  end(): void;
}

interface Running {
  readonly task: TaskFacts;
  overrunAt: MonotonicMs | undefined;
}

/** Which handlers this replica is running, and which of them have not returned by their deadline. */
export class RunningTasks {
  readonly #clock: AppClock;
  readonly #running = new Set<Running>();

  constructor(clock: AppClock) {
    this.#clock = clock;
  }

  /** A task may be here twice: an overrun handler beside its own re-run. */
  begin(task: TaskFacts): RunEntry {
    const run: Running = { task, overrunAt: undefined };
    this.#running.add(run);
    return {
      overrun: () => {
        run.overrunAt = this.#clock.monotonic();
      },
      end: () => {
        this.#running.delete(run);
      },
    };
  }

  get busy(): number {
    return this.#running.size;
  }

  all(): TaskFacts[] {
    return [...this.#running].map(({ task }) => task);
  }

  /** Handlers past their deadline, and by how much: each holds a slot that is lost until it returns. */
  overruns(): { task: TaskFacts; overMs: number }[] {
    const now = this.#clock.monotonic();
    return [...this.#running].flatMap(({ task, overrunAt }) =>
      overrunAt === undefined ? [] : [{ task, overMs: now - overrunAt }],
    );
  }
}
