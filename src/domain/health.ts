import type { QueueEvent } from './observer.ts';

/** Why a replica is not ready, with the sentence for people. The codes are stable. */
export const HEALTH_PROBLEMS = {
  not_started: 'the replica has not started: its database, schema and privileges are not checked yet',
  stopping: 'the replica is stopping',
  not_listening: 'the LISTEN connection is down: tasks are found by the poll alone',
  not_discovering: 'the database does not answer when tasks are looked for or claimed',
  database_down: 'the database does not answer',
  not_scheduling: 'the database does not answer when cron ticks are looked for',
} as const;

export type HealthProblem = keyof typeof HEALTH_PROBLEMS;

/** Whether a replica does what it is there for. */
export interface Health {
  readonly ready: boolean;
  /** Empty when it is ready. */
  readonly problems: readonly { readonly code: HealthProblem; readonly message: string }[];
}

export interface HealthExpectations {
  /** It listens, and looks for tasks. */
  readonly runsTasks: boolean;
  /** It looks for cron ticks. */
  readonly hasCron: boolean;
}

export function healthOf(problems: readonly HealthProblem[]): Health {
  return {
    ready: problems.length === 0,
    problems: problems.map((code) => ({ code, message: HEALTH_PROBLEMS[code] })),
  };
}

/** Follows the events of one replica. */
export class HealthWatch {
  readonly #expectations: HealthExpectations;
  #life: 'not_started' | 'running' | 'stopping' = 'not_started';
  #isListening = false;
  // A slot that has all it can run does not look for more: what counts is that nothing has failed since it last did.
  readonly #hasLooked = { claim: false, cron: false };
  readonly #isFailing = { claim: false, cron: false };

  constructor(expectations: HealthExpectations) {
    this.#expectations = expectations;
  }

  readonly observe = (event: QueueEvent): void => {
    switch (event.kind) {
      case 'started':
        this.#life = 'running';
        break;
      case 'stopping':
        this.#life = 'stopping';
        break;
      case 'listener_connected':
        this.#isListening = true;
        break;
      case 'listener_lost':
        this.#isListening = false;
        break;
      case 'discovered':
        this.#hasLooked.claim = true;
        break;
      case 'cron_looked':
        this.#hasLooked.cron = true;
        break;
      case 'database_failed':
      case 'database_recovered':
        if (event.during === 'claim' || event.during === 'cron')
          this.#isFailing[event.during] = event.kind === 'database_failed';
        break;
      default:
    }
  };

  health(): Health {
    if (this.#life !== 'running') return healthOf([this.#life]);
    const { runsTasks, hasCron } = this.#expectations;
    const isDoing = (what: 'claim' | 'cron') => this.#hasLooked[what] && !this.#isFailing[what];
    const problems: HealthProblem[] = [];
    if (runsTasks && !this.#isListening) problems.push('not_listening');
    if (runsTasks && !isDoing('claim')) problems.push('not_discovering');
    if (hasCron && !isDoing('cron')) problems.push('not_scheduling');
    return healthOf(problems);
  }
}
