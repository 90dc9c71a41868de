import { expect, test } from 'vitest';
import { promisesInReadme, renderPromises } from '../support/promises-table.ts';

test("the README's table of promises names every test of test/guarantees (write it with `npm run readme`)", () => {
  expect(promisesInReadme()).toBe(renderPromises());
});
