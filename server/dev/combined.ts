import path from 'node:path';
import { type Environment, readConfig, readVariable } from '../config.ts';
import type { Database } from '../database.ts';
import { Problem } from '../problem.ts';
import type { RoleContext } from '../run.ts';
import { serveConfig } from '../serve.ts';
import { openLocalDatabase } from './local-postgres.ts';
import { chosenSecrets } from './local-secrets.ts';
import { asOperator, registerCell } from './register-cell.ts';
import { claimDataDir } from './up-state.ts';

/**
 * Both roles in one process on one origin, for a self-hoster. With DATABASE_URL it behaves like any other process: the schema
 * must be there. Without, it brings its own Postgres, migrates it and makes its keys, all kept in the data folder.
 * Throws a {@link Problem}.
 */
export async function runCombined(env: Environment): Promise<void> {
  if (env.DATABASE_URL) {
    await serveConfig(readConfig({ ...env, ORCA_RELAY_ROLE: 'combined' }), {
      beforeStart: (context) => registerAs(context.db, context),
    });
    return;
  }
  const dataDir = path.resolve(readVariable(env, 'ORCA_RELAY_DATA_DIR') as string);
  const claim = claimDataDir(dataDir);
  try {
    const database = await openLocalDatabase(env, { dataDir });
    try {
      const { signingKey, selfHostedKey } = chosenSecrets(env, database.secrets);
      const config = readConfig({
        ...env,
        ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: signingKey,
        ORCA_RELAY_SELF_HOSTED_KEY: selfHostedKey,
        ORCA_RELAY_ROLE: 'combined',
        DATABASE_URL: database.urls.combined,
      });
      const { origin } = await serveConfig(config, {
        beforeStart: (context) => asOperator(database.urls.operator, (operator) => registerAs(operator, context)),
        afterStop: async () => {
          claim.release();
          await database.stop();
        },
      });
      const cells = [{ id: config.cellId, url: config.cellUrl ?? origin }];
      const operatorUrl = database.urls.operator;
      claim.publish({ director: origin, cells, selfHostedKey, operatorUrl });
    } catch (error) {
      await database.stop();
      throw error;
    }
  } catch (error) {
    claim.release();
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
