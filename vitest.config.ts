import os from 'node:os';
import { defineConfig } from 'vitest/config';
import { FAULT_VARIABLE, plantFault, readFault } from './test/mutations/plant-fault.ts';

// only `npm run mutations` names one
const fault = readFault(process.env[FAULT_VARIABLE]);

export default defineConfig({
  plugins: fault === null ? [] : [plantFault(fault)],
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['./test/global-setup.ts'],
    // uWebSockets.js is a native add-on with one event loop a process
    pool: 'forks',
    // tests wait for sockets and Postgres more than they compute
    maxWorkers: Math.max(2, os.availableParallelism()),
    // far beyond what a busy machine needs: a bound that matters is in its test
    testTimeout: 240_000,
    hookTimeout: 240_000,
    expect: { poll: { timeout: 40_000, interval: 25 } },
  },
});
