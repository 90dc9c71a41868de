import { isSkipRetry } from '../domain/errors.ts';
import {
  type FailureRecord,
  type Outcome,
  type Run,
  type RunEnd,
  type Settlement,
  unreachable,
  type Write,
} from '../domain/outcome.ts';
import { NO_SECRETS, type Secrets } from '../domain/secrets.ts';
import type { ClaimedTask } from '../domain/task.ts';
import type { BackoffPolicy, TaskDefinition } from '../domain/task-definition.ts';
import { causeChain, describeThrown, type ThrownDescription } from '../domain/thrown.ts';
import { backoffMs } from './backoff.ts';

export interface Decision {
  readonly outcome: Outcome;
  readonly settlement: Settlement;
  /** What goes to the log; undefined when nothing went wrong. */
  readonly error: string | undefined;
}

export interface DecisionFacts {
  readonly attempt: number;
  readonly backoff: BackoffPolicy;
  /** How what was thrown is told; without it as it is. */
  readonly describe?: (thrown: unknown) => ThrownDescription;
}

/** What is known of a run beside how it ended. `secrets` has learned what must not be told of its payload. */
export function decisionFacts(
  { attempt }: Pick<ClaimedTask, 'attempt'>,
  { backoff }: Pick<TaskDefinition, 'backoff'>,
  secrets: Secrets | undefined,
): DecisionFacts {
  return { attempt, backoff, describe: (thrown) => (secrets ?? NO_SECRETS).describe(thrown) };
}

/** From how a run ended to what is written about it. Pure: the writing is elsewhere. */
export function decide(run: Run, facts: DecisionFacts): Decision {
  const { end, interruption, advanced } = run;
  switch (end.kind) {
    case 'done':
      // Also at the deadline: an abort that was swallowed cannot be told from having finished.
      return { outcome: 'success', settlement: dequeue(run), error: undefined };
    case 'continue':
      return continued(run, facts);
    case 'never_started':
      return failed('timeout', plain('timeout', facts, NEVER_STARTED), facts);
    case 'poison':
      return retired(plain('failure', facts, end.problem));
    case 'threw':
      if (interruption?.kind === 'shutdown') {
        const outcome = advanced ? 'continued' : 'cancelled';
        return {
          outcome,
          settlement: release(outcome, facts, SHUTDOWN),
          error: advanced ? undefined : SHUTDOWN,
        };
      }
      if (isSkipRetry(end.thrown)) return retired(recorded('failure', facts, end.thrown));
      return thrown(end, run, facts);
    default:
      return unreachable(end);
  }
}

const NEVER_STARTED = 'the claim was answered too late for its deadline: the handler was not started';
const SHUTDOWN = 'the replica was shut down while the handler ran';
const ADVANCED_NOTHING = "the handler returned 'continue' without advancing its cursor";

/** Where the row stands once the decision has met the database. */
export function settledAs(decision: Decision, write: Write | 'unreachable', completed: boolean): Outcome {
  if (write === 'unreachable') return 'lost';
  // The handler's own transaction has deleted the row, and committed: nobody else could, under a live lease.
  if (write === 'refused' && completed) return 'success';
  // A release that matches nothing is no loss: the cursor, or the end of the lease, gave the row back before.
  if (write === 'refused' && decision.settlement.kind !== 'release') return 'lost';
  return decision.outcome;
}

function dequeue({ resultText }: Run): Settlement {
  return resultText === undefined ? { kind: 'dequeue' } : { kind: 'dequeue', resultText };
}

function continued(run: Run, facts: DecisionFacts): Decision {
  const outcome = run.pastDeadline ? 'timeout' : 'continued';
  return {
    outcome,
    settlement: release(outcome, facts, ADVANCED_NOTHING),
    error: run.pastDeadline ? 'the slice ran past its deadline' : undefined,
  };
}

function thrown(end: RunEnd & { kind: 'threw' }, run: Run, facts: DecisionFacts): Decision {
  const outcome =
    run.interruption?.kind === 'deadline' && isAbort(end.thrown, run.abortReason) ? 'timeout' : 'failure';
  return failed(outcome, recorded(outcome, facts, end.thrown), facts);
}

function failed(outcome: Outcome, failure: FailureRecord, facts: DecisionFacts): Decision {
  const settlement = {
    kind: 'record_failure',
    failure,
    backoffMs: backoffMs(facts.attempt, facts.backoff),
  } as const;
  return { outcome, settlement, error: failure.message };
}

function retired(failure: FailureRecord): Decision {
  return { outcome: 'failure', settlement: { kind: 'retire', failure }, error: failure.message };
}

function release(outcome: Outcome, facts: DecisionFacts, message: string): Settlement {
  return { kind: 'release', failure: plain(outcome, facts, message) };
}

function plain(outcome: Outcome, facts: DecisionFacts, message: string): FailureRecord {
  return { attempt: facts.attempt, outcome, message };
}

function recorded(outcome: Outcome, facts: DecisionFacts, value: unknown): FailureRecord {
  const { message, stack } = (facts.describe ?? describeThrown)(value);
  return { attempt: facts.attempt, outcome, message, ...(stack === undefined ? {} : { stack }) };
}

// The error is the deadline's abort when it is the signal's own reason, or wraps it, or is what a client that
// honours signals throws of itself. Told by identity and by name, never by the text.
function isAbort(value: unknown, reason: unknown): boolean {
  return causeChain(value).some((cause) => cause === reason || isNamedAbort(cause));
}

function isNamedAbort(value: unknown): boolean {
  try {
    return typeof value === 'object' && value !== null && 'name' in value && value.name === 'AbortError';
  } catch {
    return false;
  }
}
