import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    typecheck: { enabled: true, include: ['test/types/**/*.test-d.ts'], tsconfig: 'tsconfig.json' },
    // A process each: tests kill servers, take signals and patch globals.
    pool: 'forks',
    maxWorkers: 2,
    // Generous, since a slow machine is no failure; what hangs is still found.
    testTimeout: 60_000,
    hookTimeout: 120_000,
    sequence: { shuffle: true },
    reporters: ['default', ['json', { outputFile: '.taskq/vitest-report.json' }]],
    coverage: { include: ['src/**', 'cli/**'] },
  },
});
