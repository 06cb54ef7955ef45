import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    reporters: ['default', './test/support/reporter.ts'],
    pool: 'forks',
    // Many tests wait for servers, outages and deadlines: three at once keep two cores busy. More make deadlines meaningless.
    maxWorkers: 3,
    // A machine that is busy with other work may take several times longer than its tests alone.
    testTimeout: 60_000,
    hookTimeout: 120_000,
    teardownTimeout: 20_000,
  },
});
