import type { Environment } from '../config.ts';
import { Problem } from '../problem.ts';
import { FleetReader } from './fleet-command.ts';
import { findDatabase } from './session.ts';

/** Of cells or regions: a pool, and what a cell in reserve mode holds of it. */
export type Pools = Readonly<Record<string, number | { pool: number; peak: number }>>;

export interface BudgetCommandOptions {
  cellPool: number;
  pool: Pools;
  directors: number;
  directorPool: number;
  rolling: number;
  auth: number;
  api: number;
  push: number;
  maintenance: number;
  reserve: number;
  maxConnections?: number;
  json?: boolean;
}

interface Budget {
  cells: number;
  directors: number;
  auth: number;
  api: number;
  push: number;
  configured: number;
  overlap: number;
  maintenance: number;
  operating: number;
  max_connections: number;
  reserve: number;
  usable: number;
  spare: number;
  within_budget: boolean;
  in_use: number;
}

const BUDGET_SQL = `
select * from relay_v1.connection_budget(cell_pool => $1, cell_pools => $2, directors => $3, director_pool => $4,
  rolling => $5, auth => $6, api => $7, push => $8, maintenance => $9, reserve => $10, max_connections => $11)`;

/** Whether all that connects to the database fits; throws a {@link Problem} when it does not. */
export async function runBudget(options: BudgetCommandOptions, env: Environment): Promise<void> {
  const reader = new FleetReader(findDatabase(env));
  try {
    const [budget] = await reader.rows<Budget>(BUDGET_SQL, [
      options.cellPool,
      JSON.stringify(options.pool),
      options.directors,
      options.directorPool,
      options.rolling,
      options.auth,
      options.api,
      options.push,
      options.maintenance,
      options.reserve,
      options.maxConnections ?? null,
    ]);
    if (budget === undefined) throw new Problem('the database answered nothing');
    console.log(options.json ? JSON.stringify(budget) : budgetText(budget));
    if (!budget.within_budget) {
      throw new Problem(
        `over the budget: ${budget.operating} connections and ${budget.reserve} in reserve do not stay below ${budget.max_connections}`,
      );
    }
  } finally {
    await reader.close();
  }
}

function budgetText(budget: Budget): string {
  const lines: [string, number, string?][] = [
    ['cells', budget.cells],
    ['directors', budget.directors],
    ['auth', budget.auth],
    ['api', budget.api],
    ['push', budget.push],
    ['configured', budget.configured],
    ['replacements', budget.overlap, 'while one kind of process runs twice'],
    ['maintenance', budget.maintenance],
    ['operating', budget.operating],
    ['usable', budget.usable, `${budget.max_connections} of the server, less ${budget.reserve} in reserve`],
    ['spare', budget.spare],
    ['in use now', budget.in_use],
  ];
  return lines
    .filter(([name, count]) => count !== 0 || !['auth', 'api', 'push'].includes(name))
    .map(([name, count, note]) => `${name.padEnd(14)}${String(count).padStart(5)}${note ? `  ${note}` : ''}`)
    .join('\n');
}
