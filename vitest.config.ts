import os from 'node:os';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['./test/global-setup.ts'],
    // uWebSockets.js is a native add-on with one event loop a process
    pool: 'forks',
    // tests wait for sockets and Postgres more than they compute
    maxWorkers: Math.max(2, os.availableParallelism()),
    testTimeout: 20_000,
    hookTimeout: 30_000,
  },
});
