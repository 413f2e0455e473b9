import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from './support/fleet.ts';
import { until } from './support/wait.ts';

/** A reserve cell that no director books on falls back to db: whoever sets the mode is told. */

let fleet: Fleet;
let operator: pg.Client;
const warnings: (string | undefined)[] = [];

beforeAll(async () => {
  fleet = await Fleet.start({ directors: 0 });
  await (await fleet.addDirector({ ORCA_RELAY_RESERVE_PLACEMENT: 'off' })).start();
  operator = new pg.Client({ connectionString: fleet.database.urlFor('relay_operator') });
  await operator.connect();
  operator.on('notice', ({ severity, message }) => severity === 'WARNING' && warnings.push(message));
});
afterAll(async () => {
  await operator?.end();
  await fleet?.stop();
});

const isPolled = async () => (await fleet.database.query('select polled from relay_v1.modes'))[0]?.polled;
const toReserve = () => operator.query(`select relay_v1.set_admit_mode('c1', 'reserve')`);

test('a mode that is set to reserve warns while only directors without reserve placement poll the cell', async () => {
  await fleet.advance(40_000, 1_000);
  expect(await isPolled()).toBe(false);
  await toReserve();
  expect(warnings).toEqual([expect.stringContaining('no director with reserve placement on polls cell c1')]);

  await (await fleet.addDirector()).start();
  await fleet.advance(20_000, 1_000);
  await until('the cell to say that it is polled', isPolled, Boolean);
  await toReserve();
  expect(warnings).toHaveLength(1);
});
