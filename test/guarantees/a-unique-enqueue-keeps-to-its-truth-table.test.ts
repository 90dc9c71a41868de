import { TaskqError } from '../../src/domain/errors.ts';
import type { TaskId } from '../../src/domain/ids.ts';
import { ON_CONFLICTS, type OnConflict, type UniqueWhile } from '../../src/domain/uniqueness.ts';
import { findRow, type RowImage } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { describe, expect, test } from '../support/test.ts';
import { makeExisting } from '../support/unique.ts';
import {
  type Answer,
  answersOf,
  type Cell,
  MODES,
  type ModeName,
  STATES,
  type State,
  TRUTH_TABLE,
} from '../support/unique-truth-table.ts';

describe('a unique enqueue answers and writes what its truth table says, for every state, mode and conflict', () => {
  for (const state of Object.keys(STATES) as State[]) {
    const cells = Object.entries(TRUTH_TABLE[state]) as [ModeName, Cell][];
    const answers = cells.map(([mode, cell]) => `${mode}: ${answersOf(cell)}`);

    test(`the task ${STATES[state]} → ${answers.join('; ')}`, async ({ db }) => {
      for (const [mode, cell] of cells) {
        for (const onConflict of ON_CONFLICTS) {
          const name = `while ${mode}, on conflict ${onConflict}`;
          const existing = await makeExisting(db, name, state, MODES[mode]);
          const before = existing && (await findRow(db, existing));

          const { answer, id } = await answerTo(name, MODES[mode].while, onConflict);

          expect(answer, name).toBe(cell[onConflict]);
          if (answer === 'existing' || answer === 'replaced') expect(id, name).toBe(existing);
          if (answer === 'enqueued') {
            expect(await findRow(db, id as TaskId), name).toMatchObject({ payload: { n: 2 } });
          }
          const after = existing && (await findRow(db, existing));
          expect(after && contentOf(after), name).toEqual(
            before && { ...contentOf(before), ...(answer === 'replaced' ? { payload: { n: 2 } } : {}) },
          );
        }
      }

      async function answerTo(
        key: string,
        mode: UniqueWhile,
        onConflict: OnConflict,
      ): Promise<{ answer: Answer; id?: TaskId }> {
        try {
          const unique = { key, while: mode, onConflict };
          const { id, status } = await enqueue(db, 'plain', { n: 2 }, { unique });
          return { answer: status, id };
        } catch (error) {
          if (error instanceof TaskqError && error.code === 'TASK_EXISTS') return { answer: 'TASK_EXISTS' };
          throw error;
        }
      }
    });
  }
});

/** Without the lease: one that has lapsed may be taken from a row that somebody counts on. */
function contentOf(row: RowImage): Record<string, unknown> {
  const { lease_token: _token, lease_expires_at: _expiry, ...content } = row;
  return content;
}
