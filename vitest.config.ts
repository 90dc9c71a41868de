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
    // On a shared CI machine a stall of seconds is no defect; what fails twice in a row is. Retries are listed.
    retry: process.env['CI'] === undefined ? 0 : 1,
    sequence: { shuffle: true },
    reporters: ['default', ['json', { outputFile: '.taskq/vitest-report.json' }]],
    coverage: { include: ['src/**', 'cli/**'] },
  },
});
