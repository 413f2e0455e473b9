import path from 'node:path';
import { type Environment, readConfig, readVariable } from '../config.ts';
import type { Database } from '../database.ts';
import { Problem } from '../problem.ts';
import { type RoleContext, type RunningProcess, startProcess } from '../run.ts';
import { announce, onEnd, serveConfig } from '../serve.ts';
import { openLocalDatabase } from './local-postgres.ts';
import { chosenSecrets } from './local-secrets.ts';
import { asOperator, registerCell } from './register-cell.ts';
import { claimDataDir } from './up-state.ts';

/** The process gets 5 s, then Postgres. */
const STOP_MS = 12_000;

/**
 * Both roles in one process on one origin, for a self-hoster. With DATABASE_URL it behaves like any other process: the schema
 * must be there. Without, it brings its own Postgres, migrates it and makes its keys, all kept in the data folder.
 * Throws a {@link Problem}.
 */
export async function runCombined(env: Environment): Promise<void> {
  if (env.DATABASE_URL) {
    const config = readConfig({ ...env, ORCA_RELAY_ROLE: 'combined' });
    await serveConfig(config, { beforeStart: (context) => registerAs(context.db, context) });
    return;
  }
  const starting = startCombined(env);
  // from the first moment: a signal while Postgres starts must not leave it behind
  onEnd(async () => {
    await (await starting.catch(() => null))?.stop();
  }, STOP_MS);
  announce((await starting).running);
}

interface Combined {
  running: RunningProcess;
  stop(): Promise<void>;
}

async function startCombined(env: Environment): Promise<Combined> {
  const dataDir = path.resolve(readVariable(env, 'ORCA_RELAY_DATA_DIR') as string);
  const claim = claimDataDir(dataDir);
  const undo: (() => Promise<void>)[] = [async () => claim.release()];
  const stop = async () => {
    for (const step of undo.splice(0).reverse()) await step();
  };
  try {
    const database = await openLocalDatabase(env, { dataDir });
    undo.push(database.stop);
    const { signingKey, selfHostedKey } = chosenSecrets(env, database.secrets);
    const config = readConfig({
      ...env,
      ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: signingKey,
      ORCA_RELAY_SELF_HOSTED_KEY: selfHostedKey,
      ORCA_RELAY_ROLE: 'combined',
      DATABASE_URL: database.urls.combined,
    });
    const operatorUrl = database.urls.operator;
    const running = await startProcess(config, {
      processMetrics: true,
      beforeStart: (context) => asOperator(operatorUrl, (operator) => registerAs(operator, context)),
    });
    undo.push(running.stop);
    const cells = [{ id: config.cellId, url: config.cellUrl ?? running.origin }];
    claim.publish({ director: running.origin, cells, selfHostedKey, operatorUrl });
    return { running, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function registerAs(operator: Database, { config, origin }: RoleContext): Promise<void> {
  const cell = { id: config.cellId, url: config.cellUrl ?? origin() };
  const answer = await registerCell(operator, cell, config);
  if (answer === 'ok') return;
  const cells = await operator.call('cells', {});
  if (cells.some(({ cell_id, url }) => cell_id === cell.id && url === cell.url)) return;
  throw new Problem(
    `the cell ${cell.id} is not registered with ${cell.url}, and this login may not do it (${answer}): call relay_v1.register_cell as an operator`,
  );
}
