import { describe, expect, test } from 'vitest';
import {
  type Evidence,
  judge,
  type LedgerEntry,
  type PlatformState,
  platformProblems,
} from '../../src/demo/report.ts';
import type { TaskHistory } from '../../src/demo/task-events.ts';
import type { Outcome } from '../../src/index.ts';

const committed: LedgerEntry = { id: '1', type: 'explore_purge', committed: true, doneInline: false };
const rolledBack: LedgerEntry = { id: '2', type: 'explore_purge', committed: false, doneInline: false };

function history(id: string, claimedBy: readonly string[], outcomes: readonly Outcome[]): TaskHistory {
  const task = { id, type: 'explore_purge', at: 0 };
  return {
    id,
    claims: claimedBy.map((worker, at) => ({ ...task, kind: 'claimed', worker, attempt: at + 1 })),
    settlements: outcomes.map((outcome, at) => ({
      ...task,
      kind: 'settled',
      worker: claimedBy[at] ?? 'A',
      attempt: at + 1,
      outcome,
      dead: false,
      error: undefined,
    })),
  };
}

function verdict(evidence: Partial<Omit<Evidence, 'histories'>> & { histories?: TaskHistory[] }) {
  return judge({
    ledger: evidence.ledger ?? [committed],
    remaining: evidence.remaining ?? [],
    killedWorkers: evidence.killedWorkers ?? new Set(),
    histories: new Map((evidence.histories ?? []).map((each) => [each.id, each])),
  });
}

describe('the invariant', () => {
  test('holds when what was committed succeeded and what was rolled back never was', () => {
    const judged = verdict({
      ledger: [committed, rolledBack],
      histories: [history('1', ['A'], ['success'])],
    });
    expect(judged.invariant).toEqual({ holds: true, problems: [], unreportedByKilledWorker: 0 });
    expect(judged.types).toEqual([
      {
        type: 'explore_purge',
        enqueued: 1,
        succeeded: 1,
        inline: 0,
        retried: 0,
        dead: 0,
        lost: 0,
        rolledBack: 1,
      },
    ]);
  });

  test('holds for a task that a killed worker held and another finished; it counts as retried', () => {
    const judged = verdict({
      histories: [history('1', ['A', 'B'], ['success'])],
      killedWorkers: new Set(['A']),
    });
    expect(judged).toMatchObject({ takenOver: 1, invariant: { holds: true }, types: [{ retried: 1 }] });
  });

  test('holds for a row that a killed worker removed without living to report it', () => {
    const judged = verdict({ histories: [history('1', ['A'], [])], killedWorkers: new Set(['A']) });
    expect(judged.invariant).toEqual({ holds: true, problems: [], unreportedByKilledWorker: 1 });
  });

  test.each([
    ['is gone although nobody finished it', { histories: [history('1', ['A'], [])] }, 'is gone'],
    ['was never claimed and is gone', {}, 'is gone'],
    ['ended twice', { histories: [history('1', ['A', 'B'], ['success', 'success'])] }, 'ended 2 times'],
    ['is left in the table', { remaining: [{ id: '1', dead: false }] }, 'did not run to its end'],
    ['is a dead letter', { remaining: [{ id: '1', dead: true }] }, 'is a dead letter'],
    ['was rolled back and ran', { ledger: [rolledBack], histories: [history('2', ['A'], [])] }, 'and ran'],
    [
      'was rolled back and exists',
      { ledger: [rolledBack], remaining: [{ id: '2', dead: false }] },
      'is in the table',
    ],
    ['is in no ledger', { ledger: [], histories: [history('3', ['A'], ['success'])] }, 'in no transaction'],
  ] as const)('does not hold when a task %s', (_, evidence, problem) => {
    const { invariant } = verdict(evidence as Parameters<typeof verdict>[0]);
    expect(invariant.holds).toBe(false);
    expect(invariant.problems.join()).toContain(problem);
  });

  test('holds for a task that its enqueuer has done itself; not when a worker ended it too', () => {
    const inline = { ...committed, doneInline: true };
    expect(verdict({ ledger: [inline] })).toMatchObject({
      invariant: { holds: true },
      types: [{ succeeded: 1, inline: 1 }],
    });
    const twice = verdict({ ledger: [inline], histories: [history('1', ['A'], ['success'])] });
    expect(twice.invariant.problems).toEqual(['explore_purge 1 ended 2 times']);
  });

  test('the slices of a rebuild are no retries', () => {
    const sliced = history('1', ['A', 'A', 'A'], ['continued', 'continued', 'success']);
    const claims = sliced.claims.map((claim) => ({ ...claim, attempt: 1 }));
    expect(verdict({ histories: [{ ...sliced, claims }] })).toMatchObject({
      invariant: { holds: true },
      types: [{ succeeded: 1, retried: 0 }],
    });
  });

  test('refused settlements are counted as lost', () => {
    const judged = verdict({ histories: [history('1', ['A', 'B'], ['lost', 'success'])] });
    expect(judged).toMatchObject({ invariant: { holds: true }, types: [{ lost: 1, retried: 1 }] });
  });
});

test('what the follow-up work left undone is said', () => {
  const state: PlatformState = {
    edges: { published: 2, declared: 2, missing: 0, surplus: 0 },
    index: { stacks: 5, outdated: 0, ofDeletedStacks: 0 },
    objects: { ofLiveStacks: 5, ofDeletedStacks: 0, missing: 0 },
    seats: { audited: 5, live: 5, cap: 4 },
    findings: { license_missing: 1 },
    triggeredRuns: 3,
  };
  expect(platformProblems(state)).toEqual([]);
  expect(
    platformProblems({
      ...state,
      edges: { published: 2, declared: 3, missing: 2, surplus: 1 },
      index: { stacks: 5, outdated: 1, ofDeletedStacks: 1 },
      objects: { ofLiveStacks: 5, ofDeletedStacks: 1, missing: 1 },
      seats: { audited: 6, live: 5, cap: 4 },
    }),
  ).toHaveLength(7);
});
