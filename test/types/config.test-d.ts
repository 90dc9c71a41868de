import { defineConfig } from '../../src/index.ts';
import { expectTypeOf, test } from '../support/test.ts';

test('a configuration file is checked while it is written', () => {
  const roles = ['processor'] as const;
  defineConfig({ concurrency: 8, retention: '3d', leaseMargin: 5_000, roles, preparedStatements: false });
  // @ts-expect-error a length of time has a unit.
  defineConfig({ retention: '3' });
  // @ts-expect-error there is no such setting.
  defineConfig({ concurency: 8 });
  expectTypeOf(defineConfig).returns.toHaveProperty('logLevel');
});
