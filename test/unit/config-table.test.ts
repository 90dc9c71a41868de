import { expect, test } from 'vitest';
import { configurationInReadme, renderConfiguration } from '../support/config-table.ts';

test('the README lists every setting as the code has it', () => {
  expect(configurationInReadme(), 'run `npm run readme`').toBe(renderConfiguration());
});
