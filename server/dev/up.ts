import path from 'node:path';
import { type Environment, readVariable } from '../config.ts';
import { packageVersion } from '../package-root.ts';
import { onEnd } from '../serve.ts';
import { type LogFile, openLogFile, type Paint, painter, readableLine } from './child-log.ts';
import { type LocalFleet, startLocalFleet } from './local-fleet.ts';
import { shortPath } from './local-postgres.ts';
import type { ChildEvents } from './supervised-child.ts';

export interface UpOptions {
  /** The director's; cells take the following ones. Default PORT, else 8080. */
  port?: number;
  cells: number;
  verbose: boolean;
}

/** Children get 5.5 s, then Postgres. */
const STOP_MS = 15_000;
const SAME_AGAIN_MS = 10_000;
const SHOWN_ALWAYS = new Set(['warn', 'error', 'fatal']);

/** Starts everything on this machine and shows it; returns once it runs, and ends with the process. Throws a Problem. */
export async function runUp(options: UpOptions, env: Environment): Promise<void> {
  const started = performance.now();
  const dataDir = path.resolve(readVariable(env, 'ORCA_RELAY_DATA_DIR') as string);
  const paint = painter(process.stdout, process.env);
  let log: LogFile | null = null;
  let fleet: Promise<LocalFleet> | null = null;
  const ending = onEnd(async () => {
    console.log('\nstopping …');
    await (await fleet?.catch(() => null))?.stop();
    log?.close();
    console.log('everything has stopped');
  }, STOP_MS);
  const say = (text: string) => console.log(text);
  const isNews = repeatFilter();
  const events: ChildEvents = {
    onLine(name, line) {
      log ??= openLogFile(dataDir);
      log.write(name, line);
      const { text, level, what } = readableLine(name, line, paint);
      if (options.verbose || (SHOWN_ALWAYS.has(level) && isNews(what))) say(text);
    },
    onRestart: (name, reason, delayMs) =>
      say(paint('yellow', `${name} ended (${reason}); it is started again in ${delayMs} ms`)),
  };
  fleet = startLocalFleet({
    env,
    dataDir,
    port: options.port ?? readVariable(env, 'PORT'),
    cells: options.cells,
    events,
    onPostgresRestart: (problem) =>
      say(paint('yellow', problem ?? 'Postgres had ended; it is started again on the same port')),
  });
  const running = await fleet;
  if (ending.asked()) return;
  const seconds = (performance.now() - started) / 1_000;
  say(panel(running, shortPath(path.join(dataDir, 'up.log')), seconds, paint));
}

/** A process that has lost its database says so many times; the file has them all. */
function repeatFilter(): (what: string) => boolean {
  const shown = new Map<string, number>();
  return (what) => {
    const now = performance.now();
    for (const [key, at] of shown) if (now - at > SAME_AGAIN_MS) shown.delete(key);
    if (shown.has(what)) return false;
    shown.set(what, now);
    return true;
  };
}

/** What runs, where, and what to try next. */
export function panel(fleet: LocalFleet, logFile: string, seconds: number, paint: Paint): string {
  const { database } = fleet;
  const folder = database.dataFolder === null ? '' : `, data in ${database.dataFolder}`;
  const adopted = database.adopted ? ' (taken over from an earlier run)' : '';
  const rows: [string, string][] = [
    ['director', fleet.director],
    ...fleet.cells.map(({ id, url }): [string, string] => [id, url]),
    ['postgres', `${database.description}${folder}${adopted}`],
    ['logs', logFile],
  ];
  const tries: [string, string][] = [
    ['npx orca-relay demo', 'a desktop and a phone talk through a cell'],
    [`${fleet.director}/fleet`, 'the fleet in a browser'],
    ['npx orca-relay fleet --watch', 'the fleet in a terminal'],
    [`curl ${fleet.director}/ready`, 'is it well?'],
  ];
  const width = Math.max(...tries.map(([command]) => command.length));
  return [
    '',
    `  ${paint('bold', `Orca Relay ${packageVersion}`)} is up after ${seconds.toFixed(1)} s`,
    '',
    ...rows.map(([name, value]) => `  ${paint('cyan', name.padEnd(10))} ${value}`),
    '',
    '  Try next, in another terminal:',
    ...tries.map(([command, what]) => `    ${command.padEnd(width)}   ${paint('dim', what)}`),
    '',
    '  Ctrl-C stops all of it.',
    '',
  ].join('\n');
}
