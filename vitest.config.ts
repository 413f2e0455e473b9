import os from 'node:os';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { FAULT_VARIABLE, plantFault, readFault } from './test/mutations/plant-fault.ts';

// only `npm run mutations` names one
const fault = readFault(process.env[FAULT_VARIABLE]);

/** The longest file first: it is one worker's for a minute or more, and would be waited for alone at the end. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isLongest = ({ moduleId }: TestSpecification) => moduleId.endsWith('simulation/simulation.test.ts');
    return [...sorted.filter(isLongest), ...sorted.filter((file) => !isLongest(file))];
  }
}

export default defineConfig({
  plugins: fault === null ? [] : [plantFault(fault)],
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['./test/global-setup.ts'],
    // uWebSockets.js is a native add-on with one event loop a process
    pool: 'forks',
    sequence: { sequencer: LongestFirst },
    // tests wait for sockets and Postgres more than they compute
    maxWorkers: Math.max(2, os.availableParallelism()),
    // far beyond what a busy machine needs: a bound that matters is in its test
    testTimeout: 240_000,
    hookTimeout: 240_000,
    expect: { poll: { timeout: 40_000, interval: 25 } },
  },
});
