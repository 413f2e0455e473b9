import type { Config } from '../config.ts';
import { type Database, openDatabase } from '../database.ts';
import { createLogger } from '../log.ts';

export interface OwnCell {
  id: string;
  url: string;
}

export type CellCapacity = Pick<Config, 'region' | 'cellCapacity' | 'connectionLimit'>;

/** Opens a short-lived connection as the operator. */
export async function asOperator<T>(operatorUrl: string, work: (operator: Database) => Promise<T>): Promise<T> {
  const operator = openDatabase({
    url: operatorUrl,
    applicationName: 'orca-relay/operator',
    poolMax: 1,
    log: createLogger({ role: 'operator', level: 'silent' }),
  });
  try {
    return await work(operator);
  } finally {
    await operator.close();
  }
}

/** Answers `ok`, or why not. */
export function registerCell(operator: Database, { id, url }: OwnCell, capacity: CellCapacity): Promise<string> {
  return operator.call('register_cell', {
    cell_id: id,
    url,
    region: capacity.region,
    capacity_units: capacity.cellCapacity,
    connection_hard_cap: capacity.connectionLimit?.hardCap ?? null,
    connection_unobserved_bound: capacity.connectionLimit?.unobservedBound ?? null,
  });
}
