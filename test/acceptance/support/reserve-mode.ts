import type { Fleet } from './fleet.ts';
import { readFeed } from './seat-feed.ts';
import { until } from './wait.ts';

/** The switch of a cell between the two ways to admit hosts, as an operator makes it: by the same functions, in their order. */

async function order(fleet: Fleet, text: string, values: unknown[]): Promise<void> {
  const [row] = await fleet.database.query(`select ${text} as answer`, values);
  if (row?.answer !== 'ok') throw new Error(`${text} answered ${row?.answer}`);
}

async function setFlags(fleet: Fleet, cellId: string, flags: Record<string, unknown>): Promise<void> {
  const [row] = await fleet.database.query('select flags_generation from relay.cell where cell_id = $1', [cellId]);
  await order(fleet, 'relay_v1.set_cell_flags($1, $2, $3)', [cellId, JSON.stringify(flags), row?.flags_generation]);
}

/** What its feed says it is; `admitModeEffective` stays reserve until every host has its lease. */
async function says(fleet: Fleet, cellId: string, mode: 'db' | 'reserve'): Promise<void> {
  const cell = fleet.cells.find(({ id }) => id === cellId);
  if (cell === undefined) throw new Error(`no cell ${cellId}`);
  await until(
    `${cellId} in ${mode} mode`,
    () => readFeed(fleet, cell),
    (page) => page.admitModeRaw === mode && page.admitModeEffective === mode,
    15_000,
  );
}

/** Resolves once the cell admits from bookings and memory. */
export async function toReserve(fleet: Fleet, cellId: string, flags: Record<string, unknown> = {}): Promise<void> {
  await order(fleet, 'relay_v1.set_admit_mode($1, $2)', [cellId, 'reserve']);
  await setFlags(fleet, cellId, { ...flags, admitMode: 'reserve' });
  await says(fleet, cellId, 'reserve');
}

/** Resolves once every host of the cell has its lease and Postgres records the cell as one that asks it. */
export async function toDb(fleet: Fleet, cellId: string): Promise<void> {
  await setFlags(fleet, cellId, { admitMode: 'db' });
  await says(fleet, cellId, 'db');
  await until(
    `${cellId} recorded in db mode`,
    () => fleet.database.query(`select relay_v1.set_admit_mode($1, 'db') as answer`, [cellId]),
    ([row]) => row?.answer === 'ok',
    15_000,
  );
}
