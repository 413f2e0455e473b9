import path from 'node:path';
import { type Environment, readVariable } from '../config.ts';
import { onEnd } from '../serve.ts';
import { type LogFile, openLogFile } from './child-log.ts';
import { runDemo } from './demo.ts';
import { type LocalFleet, startLocalFleet } from './local-fleet.ts';
import type { ChildEvents } from './supervised-child.ts';
import { findUp } from './up-state.ts';

export interface DemoCommandOptions {
  mib: number;
}

/** Children get 5.5 s, then Postgres. */
const STOP_MS = 15_000;
/** What a shell shows for a command that Ctrl-C ended. */
const INTERRUPTED = 130;

/** Runs the demo against the `up` of this data folder, else against a fleet that lives as long as the demo. */
export async function runDemoCommand({ mib }: DemoCommandOptions, env: Environment): Promise<void> {
  const dataDir = path.resolve(readVariable(env, 'ORCA_RELAY_DATA_DIR') as string);
  let log: LogFile | null = null;
  let fleet: Promise<LocalFleet> | null = null;
  const cleanUp = async () => {
    await (await fleet?.catch(() => null))?.stop();
    log?.close();
  };
  const stopped = new AbortController();
  const { signal } = stopped;
  const ending = onEnd(async () => {
    console.log('\nstopping …');
    stopped.abort();
    await cleanUp();
    process.exit(INTERRUPTED);
  }, STOP_MS);
  try {
    const up = findUp(dataDir);
    if (up) {
      console.log(`Using the relay that runs on ${up.director}.`);
      await runDemo({ directors: [up.director], selfHostedKey: up.selfHostedKey, mib, signal });
    } else {
      console.log('No "orca-relay up" runs here: starting a relay for the demo …');
      fleet = startDemoFleet(env, dataDir, (name, line) => {
        log ??= openLogFile(dataDir);
        log.write(name, line);
      });
      const { director, selfHostedKey } = await fleet;
      await runDemo({ directors: [director], selfHostedKey, mib, signal });
    }
  } catch (error) {
    // what fails because everything is being stopped is no news; the end of the process is on its way
    if (ending.asked()) return;
    await cleanUp();
    throw error;
  }
  if (ending.asked()) return;
  await cleanUp();
  process.exit(0);
}

function startDemoFleet(env: Environment, dataDir: string, onLine: ChildEvents['onLine']): Promise<LocalFleet> {
  return startLocalFleet({
    env,
    dataDir,
    port: null,
    cells: 2,
    events: { onLine, onRestart: (name, reason) => console.log(`${name} ended: ${reason}`) },
    onPostgresRestart: (problem) => console.log(problem ?? 'Postgres was started again'),
  });
}
