import { expect, test } from 'vitest';
import { LEVELS } from '../../src/logging/log-observer.ts';
import { logTableInDocument, renderLogTable } from '../support/log-table.ts';

test('docs/logging.md lists every event as the code has it', () => {
  expect(logTableInDocument(), 'run `npm run readme`').toBe(renderLogTable());
});

test('beside a dead letter only a bug is an error', () => {
  const errors = Object.entries(LEVELS).filter(([, level]) => level === 'error');
  expect(errors.map(([event]) => event)).toEqual(['slot_failed']);
});
