import { Command } from 'commander';
import { whole } from './arguments.ts';
import { runChaos } from './chaos-run.ts';

const program = new Command('chaos')
  .description('kills, stops and cuts parts of a fleet that works, and says which promises did not hold')
  .option('--seeds <count>', 'so many runs', whole(1, 10_000), 1)
  .option('--from <seed>', 'the first of them; a run that found something is replayed by its own', whole(1, 2 ** 31), 1)
  .option('--seconds <count>', 'how long faults go on in each', whole(1, 3_600), 60)
  .parse();
const { seeds, from, seconds } = program.opts<{ seeds: number; from: number; seconds: number }>();

const startedAt = performance.now();
const say = (text: string) =>
  console.log(`${((performance.now() - startedAt) / 1_000).toFixed(1).padStart(8)} s  ${text}`);
const bad: number[] = [];
for (let seed = from; seed < from + seeds; seed++) {
  const findings = await runChaos({ seed, seconds, say });
  for (const finding of findings) say(`FOUND ${finding}`);
  if (findings.length > 0) bad.push(seed);
  say(`seed ${seed}: ${findings.length === 0 ? 'nothing found' : `${findings.length} found`}`);
}
console.log(
  bad.length === 0
    ? `${seeds} runs, nothing found`
    : `${seeds} runs; replay with --from ${bad.join(', --from ')} --seeds 1`,
);
process.exit(bad.length === 0 ? 0 : 1);
