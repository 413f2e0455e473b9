import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet, type Seated } from './support/fleet.ts';
import { newIdentity } from './support/identity.ts';
import { toDb, toReserve } from './support/reserve-mode.ts';
import { scrape, total } from './support/scrape.ts';
import { until } from './support/wait.ts';

const HOSTS = 300;
const TOGETHER = 10;
const POOL = 9;
const FLIPS = 10;

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ cells: [{ env: { ORCA_RELAY_DATABASE_POOL_MAX: String(POOL) } }] });
});
afterAll(() => fleet?.stop());

async function inTurns<T>(work: readonly T[], each: (item: T) => Promise<void>): Promise<void> {
  const left = [...work];
  const take = async () => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) await each(item);
  };
  await Promise.all(Array.from({ length: TOGETHER }, take));
}

const leased = async (): Promise<number> =>
  Number(
    (
      await fleet.database.query(
        `select count(*) as n from relay.lease l join relay.assignment a using (user_id, relay_host_id, cell_id, epoch)
         where l.state = 'active' and l.expires_at > relay.now()`,
      )
    )[0]?.n,
  );

const cellSays = async (name: string, labels: Record<string, string> = {}) =>
  total(await scrape(fleet.cell().origin), name, labels);

test(`90: ten flips of a cell with ${HOSTS} hosts to reserve and back close nobody, and every host has its lease`, async () => {
  const hosts: Seated[] = [];
  await inTurns(Array.from({ length: HOSTS }, newIdentity), async (identity) => {
    hosts.push(await fleet.seat(identity));
  });
  const closes = await cellSays('orca_relay_control_closes_total');
  let most = 0;
  let redialled = 0;
  for (let flip = 0; flip < FLIPS; flip += 2) {
    await toReserve(fleet, fleet.cell().id);
    // Some come by a new socket each time: from memory, without a lease.
    await inTurns(hosts.slice(flip * 30, (flip + 2) * 30), async (seated) => {
      seated.host = await fleet.dial(seated.identity, seated.grant);
      redialled += 1;
    });
    expect(await cellSays('orca_relay_reserve_unleased_controls')).toBe(60);
    let flipping = true;
    const watch = (async () => {
      while (flipping) most = Math.max(most, await cellSays('orca_relay_reserve_reregistrations_in_flight'));
    })();
    await toDb(fleet, fleet.cell().id);
    flipping = false;
    await watch;
    expect(await cellSays('orca_relay_reserve_unleased_controls')).toBe(0);
  }
  expect(redialled).toBe(HOSTS);
  expect(most).toBeLessThanOrEqual(POOL / 3);
  // The socket that a host left for its newer one, and no other.
  const after = await cellSays('orca_relay_control_closes_total');
  expect(after - closes).toBe(redialled);
  expect(await cellSays('orca_relay_control_ends_total', { cause: 'new-generation' })).toBe(redialled);
  expect(hosts.filter(({ host }) => !host.peer.isOpen)).toEqual([]);
  expect(await cellSays('orca_relay_controls')).toBe(HOSTS);
  expect(await leased()).toBe(HOSTS);
  expect(await cellSays('orca_relay_reserve_reregistrations_total', { outcome: 'active' })).toBe(HOSTS);
  await fleet.advance(60_000);
  await until('every lease renewed', leased, (seen) => seen === HOSTS);
  expect(hosts.filter(({ host }) => !host.peer.isOpen)).toEqual([]);
  expect(fleet.problems()).toEqual([]);
});
