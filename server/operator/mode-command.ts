import { createInterface } from 'node:readline/promises';
import type { Environment } from '../config.ts';
import { Problem } from '../problem.ts';
import { breakGlass } from './break-glass.ts';
import { FleetReader } from './fleet-command.ts';
import { type Ask, Interrupted, ModeWork, type SwitchOptions, switchMode } from './mode-steps.ts';
import { Progress } from './progress.ts';
import { findDatabase } from './session.ts';

export type ModeGoal = 'reserve' | 'db' | 'rearm';

export interface ModeCommandOptions {
  confirm?: string;
  breakGlass?: boolean;
}

const INTERRUPTED = 130;

/**
 * Takes a cell to reserve mode, back to db, or through db to reserve again after it tripped, and shows each step. May be
 * interrupted and run again. Throws a {@link Problem}.
 */
export async function runMode(
  cellId: string,
  goal: ModeGoal,
  options: ModeCommandOptions,
  env: Environment,
): Promise<void> {
  if (options.breakGlass && goal !== 'db') throw new Problem('--break-glass is for db alone');
  const reader = new FleetReader(findDatabase(env));
  const ask: Ask = (text, values) => reader.rows(text, values);
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => stop.abort());
  const progress = new Progress(process.stdout);
  const screen: SwitchOptions = {
    signal: stop.signal,
    onStep: (text) => {
      progress.end();
      console.log(text);
    },
    onProgress: (unleased, most) =>
      progress.show({
        left: unleased,
        total: most,
        words: `${unleased} of ${most} hosts have no lease yet`,
        isLast: unleased === 0,
      }),
  };
  try {
    await introduce(new ModeWork(ask, cellId, screen), goal, options);
    if (options.breakGlass) await breakGlass(ask, cellId, screen);
    else {
      if (goal !== 'reserve') await switchMode(ask, cellId, 'db', screen);
      if (goal !== 'db') await switchMode(ask, cellId, 'reserve', screen);
    }
  } catch (error) {
    progress.end();
    if (!(error instanceof Interrupted)) throw error;
    console.log(`Interrupted; the cell stays as it is. To go on: ${again(cellId, goal, options)}`);
    if (goal !== 'db') console.log(`To take it back: orca-relay mode ${cellId} db`);
    process.exitCode = INTERRUPTED;
  } finally {
    progress.end();
    await reader.close();
  }
}

const again = (cellId: string, goal: ModeGoal, { breakGlass: breaks }: ModeCommandOptions) =>
  `orca-relay mode ${cellId} ${goal}${breaks ? ' --break-glass' : ''}`;

/** Says where the cell is, and has risky ways confirmed in words that name it. */
async function introduce(work: ModeWork, goal: ModeGoal, options: ModeCommandOptions): Promise<void> {
  const { cellId } = work;
  const { region, state, admit_mode, flag_mode, effective_mode, seated } = await work.row();
  work.step(
    `${cellId} (${region}, ${state}) is recorded as ${admit_mode}, its flags say ${flag_mode}, its process says ` +
      `${effective_mode ?? 'nothing'}; ${seated} hosts hold a lease with it.`,
  );
  if (goal === 'db' && !options.breakGlass) return;
  const [phrase, why] = options.breakGlass
    ? [`BREAK GLASS ${cellId}`, `Hosts that ${cellId} seated from memory, and that no row names yet, are forgotten.`]
    : [`RESERVE ${cellId}`, `In reserve mode ${cellId} admits hosts without asking the database.`];
  if (options.confirm === phrase) return;
  if (options.confirm === undefined && process.stdin.isTTY && process.stdout.isTTY) {
    const terminal = createInterface({ input: process.stdin, output: process.stdout });
    // Ctrl-C belongs to the terminal while it asks
    const answer = await terminal
      .question(`${why}\nTo go on, type ${phrase}: `)
      .catch(() => {
        throw new Interrupted(`${cellId}: interrupted`);
      })
      .finally(() => terminal.close());
    if (answer.trim() === phrase) return;
  }
  throw new Problem(`${why} Nothing was changed. To go on: ${again(cellId, goal, options)} --confirm "${phrase}"`);
}
