import { expect, test } from 'vitest';
import { renderTruthTable, truthTableInDocument } from '../support/unique-truth-table.ts';

test('the truth table of docs/uniqueness.md is the one that is tested (write it with `npm run readme`)', () => {
  expect(truthTableInDocument()).toBe(renderTruthTable());
});
