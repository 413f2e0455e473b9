import path from 'node:path';
import { type Environment, readVariable } from '../config.ts';
import { onEnd } from '../serve.ts';
import { openLogFile } from './child-log.ts';
import { runDemo } from './demo.ts';
import { startLocalFleet } from './local-fleet.ts';
import { findUp } from './up-state.ts';

export interface DemoCommandOptions {
  mib: number;
}

/** Runs the demo against the `up` of this data folder, else against a fleet that lives as long as the demo. */
export async function runDemoCommand({ mib }: DemoCommandOptions, env: Environment): Promise<void> {
  const dataDir = path.resolve(readVariable(env, 'ORCA_RELAY_DATA_DIR') as string);
  const up = findUp(dataDir);
  if (up) {
    console.log(`Using the relay that runs on ${up.director}.`);
    await runDemo({ directors: [up.director], selfHostedKey: up.selfHostedKey, mib });
    process.exit(0);
  }
  console.log('No "orca-relay up" runs here: starting a relay for the demo …');
  const log = openLogFile(dataDir);
  const fleet = await startLocalFleet({
    env,
    dataDir,
    port: null,
    cells: 2,
    events: { onLine: log.write, onRestart: (name, reason) => console.log(`${name} ended: ${reason}`) },
    onPostgresRestart: (problem) => console.log(problem ?? 'Postgres was started again'),
  });
  onEnd(fleet.stop);
  try {
    const { selfHostedKey } = fleet.database.secrets;
    await runDemo({ directors: [fleet.director], selfHostedKey, mib });
  } finally {
    await fleet.stop();
    log.close();
  }
  process.exit(0);
}
