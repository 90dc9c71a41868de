import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { VERSION } from '../../src/domain/version.ts';

test('the version that a replica reports is that of the package', () => {
  const manifest = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  expect(VERSION).toBe((JSON.parse(manifest) as { version: string }).version);
});
