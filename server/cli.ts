#!/usr/bin/env node
import { Argument, Command, InvalidArgumentError, Option } from 'commander';
import { readVariable } from './config.ts';
import type { Pools } from './operator/budget-command.ts';
import { packageVersion } from './package-root.ts';
import { Problem } from './problem.ts';

const MAX_CELLS = 16;

function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= min && value <= max) return value;
    throw new InvalidArgumentError(`It takes a whole number from ${min} to ${max}.`);
  };
}

function pools(text: string, before: Pools): Pools {
  const [, name, pool, peak] = /^([^=]+)=(\d+)(?::(\d+))?$/.exec(text) ?? [];
  if (name === undefined) throw new InvalidArgumentError('It takes a name and a pool, as in c3=16 or asia=16:12.');
  return { ...before, [name]: peak === undefined ? Number(pool) : { pool: Number(pool), peak: Number(peak) } };
}

const EPILOGUE = `
Configuration is by environment variables (see the README). The database is DATABASE_URL; "up" and "combined"
bring a Postgres of their own when it is not set, with its data below ORCA_RELAY_DATA_DIR (./data/relay).`;

const DIRECTOR = ['--director <origin>', 'director to ask; without it that of a running "up"'] as const;

/** Commands load what they need when they run: a cell has no use for the terminal tools, nor they for uWebSockets.js. */
function buildProgram(): Command {
  const program = new Command('orca-relay')
    .description(
      'Connects Orca phones to desktop hosts through relay cells, with Postgres as the only authority on placement.\n' +
        'Without a command it runs the role that ORCA_RELAY_ROLE names (combined if unset).',
    )
    .version(packageVersion)
    .addHelpText('after', EPILOGUE)
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, 'orca-relay: ')) })
    .action(async () => runRole(readVariable(process.env, 'ORCA_RELAY_ROLE')));

  program
    .command('up')
    .description('try it here: starts Postgres, a director and cells on this machine, and watches over them')
    .option(
      '-p, --port <port>',
      'port of the director; cells take the following ones',
      wholeNumber(1, 65_535 - MAX_CELLS),
    )
    .option('-c, --cells <count>', 'how many cells', wholeNumber(1, MAX_CELLS), 2)
    .option('-v, --verbose', 'show every line that the processes log, not only warnings', false)
    .action(async (options) => (await import('./dev/up.ts')).runUp(options, process.env));
  program
    .command('demo')
    .description(
      'a desktop and a phone meet, pair, resume and move files, through a running "up" or a relay of its own',
    )
    .option('--mib <count>', 'how much to move each way', wholeNumber(1, 4096), 64)
    .action(async (options) => (await import('./dev/run-demo.ts')).runDemoCommand(options, process.env));
  program
    .command('sql <statement>')
    .description('runs a statement as the operator role on DATABASE_URL, or on a running "up", and prints a table')
    .option('--json', 'one JSON object a row')
    .action(async (statement, options) => {
      const { runSql } = await import('./sql-console.ts');
      console.log(await runSql(statement, { ...options, columns: process.stdout.columns }, process.env));
    });
  program
    .command('fleet')
    .description('prints every cell: whether it is live, what it carries, what is under way')
    .option('-w, --watch', 'again every second; a terminal is redrawn')
    .option('--json', 'one JSON object a cell')
    .option(...DIRECTOR)
    .action(async (options) => (await import('./operator/fleet-command.ts')).runFleet(options, process.env));
  program
    .command('events')
    .description('prints what happens as it happens: hosts that come, move and leave, and what operators change')
    .option('--cell <cell>', 'only what is about this cell')
    .option('--json', 'one JSON object an event')
    .option(...DIRECTOR)
    .action(async (options) => (await import('./operator/events-command.ts')).runEvents(options, process.env));
  program
    .command('host <id>')
    .description('prints where a host is, and who says so: its row, its seats, where it left, moves under way')
    .option('--json', 'as the director answers')
    .option(...DIRECTOR)
    .action(async (id, options) => (await import('./operator/host-command.ts')).runHost(id, options, process.env));
  program
    .command('drain <cell>')
    .description('tells the process of a cell to let its hosts go, and shows how far it is until the cell is empty')
    .option('--grace <seconds>', 'what a host still holds is cut so long after it was told (60)', wholeNumber(0, 3_600))
    .option('--pace <seconds>', 'its hosts are told one by one over so long (60)', wholeNumber(0, 1_200))
    .addOption(
      new Option('--admission <admission>', 'set this first: a general cell is not drained').choices([
        'migration-only',
        'existing-only',
      ]),
    )
    .option('--cancel', 'take the order back')
    .action(async (cell, options) =>
      (await import('./operator/drain-command.ts')).runDrain(cell, options, process.env),
    );
  program
    .command('mode')
    .description(
      'takes a cell to reserve mode, back to db, or (rearm) through db to reserve after it tripped; shows each step, and may ' +
        'be interrupted and run again',
    )
    .argument('<cell>')
    .addArgument(new Argument('<mode>').choices(['reserve', 'db', 'rearm']))
    .option(
      '--confirm <words>',
      'for reserve and rearm "RESERVE <cell>", for a broken glass "BREAK GLASS <cell>"; a terminal asks',
    )
    .option('--break-glass', 'db for a cell that is gone for good; refused while it is heard or answers', false)
    .action(async (cell, mode, options) =>
      (await import('./operator/mode-command.ts')).runMode(cell, mode, options, process.env),
    );
  program
    .command('budget')
    .description(
      'adds up the connections to the database: cells as registered, directors, what else shares the server; fails when ' +
        'they do not fit while processes are replaced',
    )
    .option('--cell-pool <count>', 'pool of a cell', wholeNumber(1, 1_000), 10)
    .option(
      '--pool <name=pool[:peak]>',
      'pool of one cell, or of the cells of a region; with a peak, what those in reserve mode hold of it; may be repeated',
      pools,
      {},
    )
    .option('--directors <count>', 'how many', wholeNumber(0, 1_000), 2)
    .option('--director-pool <count>', 'pool of a director', wholeNumber(1, 1_000), 3)
    .option('--rolling <count>', 'reserve cells that are replaced at once, and count whole', wholeNumber(0, 1_000), 0)
    .option('--auth <count>', 'connections of what issues tokens', wholeNumber(0, 10_000), 0)
    .option('--api <count>', 'connections of an API beside the relay', wholeNumber(0, 10_000), 0)
    .option('--push <count>', 'connections of a push service beside the relay', wholeNumber(0, 10_000), 0)
    .option('--maintenance <count>', 'connections of people and their tools', wholeNumber(0, 1_000), 5)
    .option('--reserve <count>', 'connections that stay free', wholeNumber(0, 1_000), 10)
    .option('--max-connections <count>', 'of another server than this one', wholeNumber(1, 100_000))
    .option('--json', 'one JSON object')
    .action(async (options) => (await import('./operator/budget-command.ts')).runBudget(options, process.env));
  program
    .command('drill')
    .description('breaks a fleet of its own on this machine, shows what happens, and says whether the promises held')
    .addArgument(
      new Argument('<what>', 'what is broken').choices([
        'dead-reserve-cell',
        'director-outage',
        'database-outage',
        'partition',
      ]),
    )
    .option(
      '--hosts <count>',
      'desktops with real sockets; partition: in each region (500; others 100)',
      wholeNumber(10, 2_000),
    )
    .option('--reserve-cells <count>', 'dead-reserve-cell: with 2, a booking does the work', wholeNumber(1, 2), 1)
    .option('--restart-directors', 'dead-reserve-cell: both directors are restarted right after the death')
    .action(async (what, options) => (await import('./drill/run-drill.ts')).runDrill(what, options));
  program
    .command('migrate')
    .description('brings the schema of DATABASE_URL to this version; run it before the new processes start')
    .action(async () => {
      const { migrate } = await import('./migrate.ts');
      await migrate(readVariable(process.env, 'DATABASE_URL'), { onMessage: (message) => console.log(message) });
    });
  program
    .command('director')
    .description('runs a director: says which cell a host belongs on')
    .action(() => runRole('director'));
  program
    .command('cell')
    .description('runs a cell: carries the connections of hosts and phones')
    .action(() => runRole('cell'));
  program
    .command('combined')
    .description('runs both in one process on one origin: for a single self-hosted relay')
    .action(() => runRole('combined'));
  return program;
}

async function runRole(role: 'director' | 'cell' | 'combined'): Promise<void> {
  if (role === 'combined') await (await import('./dev/combined.ts')).runCombined(process.env);
  else await (await import('./serve.ts')).serve(process.env, role);
}

/** Commander takes an unknown word for an argument of the root command, which has none, and says only that. */
function refuseUnknownCommand(program: Command, word: string | undefined): void {
  if (word === undefined || word.startsWith('-') || word === 'help') return;
  if (program.commands.some((command) => command.name() === word)) return;
  throw new Problem(`there is no command "${word}": see orca-relay --help`);
}

/** One host id in 64 begins with a dash, and is no option for that. */
function afterOptions(argv: readonly string[]): string[] {
  const mayMove = argv[2] === 'host' && !argv.includes('--');
  const id = mayMove ? argv.findIndex((word) => /^-[\w-]{15}$/.test(word)) : -1;
  return id === -1 ? [...argv] : [...argv.toSpliced(id, 1), '--', argv[id] as string];
}

async function main(): Promise<void> {
  try {
    const program = buildProgram();
    refuseUnknownCommand(program, process.argv[2]);
    await program.parseAsync(afterOptions(process.argv));
  } catch (error) {
    const known = error instanceof Problem || (error as Error).name === 'ListenError';
    process.stderr.write(`orca-relay: ${known ? (error as Error).message : (error as Error).stack}\n`);
    // parts that started before the failure may hold the event loop
    process.exit(1);
  }
}

await main();
