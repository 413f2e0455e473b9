import { Command } from 'commander';
import type { ProvidedContext } from 'vitest';
import { whole } from '../chaos/arguments.ts';
import { setup } from '../global-setup.ts';
import { cloneTemplate } from '../support/database.ts';
import { simulate } from './simulation.ts';

const program = new Command('simulate')
  .description('runs simulated fleets in reserve mode on a real database, and says which invariants did not hold')
  .option('--seeds <count>', 'so many runs', whole(1, 100_000), 20)
  .option('--from <seed>', 'the first of them; a run that found something is replayed by its own', whole(1, 2 ** 31), 1)
  .parse();
const { seeds, from } = program.opts<{ seeds: number; from: number }>();

const given: Partial<ProvidedContext> = {};
const tearDown = await setup({
  provide: (key, value) => {
    given[key] = value;
  },
});
if (given.templateError) process.exit(1);
const startedAt = performance.now();
const bad: number[] = [];
for (let seed = from; seed < from + seeds; seed++) {
  const { findings, counts } = await simulate(await cloneTemplate(given as ProvidedContext), { seed });
  const { booked, seated, fromDatabase } = counts;
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1).padStart(8);
  const what = findings.length === 0 ? 'nothing found' : `${findings.length} found`;
  console.log(
    `${seconds} s  seed ${seed}: ${what} (${booked} bookings, ${seated} seats, ${fromDatabase} from the database)`,
  );
  for (const finding of findings) console.log(`            FOUND ${finding}`);
  if (findings.length > 0) bad.push(seed);
}
await tearDown();
console.log(
  bad.length === 0
    ? `${seeds} runs, nothing found`
    : `${seeds} runs, something found in ${bad.length}; replay with --seeds 1 --from ${bad.join(', --from ')}`,
);
process.exit(bad.length === 0 ? 0 : 1);
