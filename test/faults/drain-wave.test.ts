import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet, type Seated } from '../acceptance/support/fleet.ts';
import { scrape, total } from '../acceptance/support/scrape.ts';

/** A full cell, and two of another region that take its hosts in. */
const HOSTS = 300;
const PACE_MS = 60_000;
const GRACE_MS = 60_000;
const STEP_MS = 2_000;
/** A window that the tolerance of a slow machine fits into, and what it may hold over an even share. */
const WINDOW_MS = 6_000;
const UNEVEN = 3;

let fleet: Fleet;
beforeAll(async () => {
  const away = { region: 'europe-west1' };
  fleet = await Fleet.start({ cells: [{}, away, away], tokenLifeSeconds: 3_600 });
});
afterAll(() => fleet?.stop());

/** Calls that a host costs the database, whoever makes them. */
const OF_HOSTS = ['assign', 'verify_seat', 'activate_control', 'release_lease'];
async function calls(): Promise<number> {
  const pages = await Promise.all([fleet.director, ...fleet.cells].map(({ origin }) => scrape(origin)));
  return OF_HOSTS.reduce(
    (sum, name) =>
      sum + pages.reduce((each, page) => each + total(page, 'orca_relay_database_calls_total', { function: name }), 0),
    0,
  );
}
/** An assign that finds a place, with and without it, one look at the hello, one activation, one release; and a spare. */
const CALLS_A_HOST = 6;

/** The most in any window, of moments in order. */
function mostWithin(moments: readonly number[], ms: number): number {
  let first = 0;
  let most = 0;
  for (const [last, at] of moments.entries()) {
    while (at - (moments[first] as number) > ms) first += 1;
    most = Math.max(most, last - first + 1);
  }
  return most;
}

class Desktop {
  current: Seated;
  toldAt: number | null = null;
  #redialling: Promise<void> | null = null;

  constructor(seated: Seated) {
    this.current = seated;
  }

  /** Reads `drain` and does as a desktop does: the new control stands before the old one goes. */
  follow(): Promise<void> | null {
    if (this.toldAt === null && this.current.host.waiting('drain').length > 0) {
      this.toldAt = fleet.clock.now();
      this.#redialling = this.#redial();
    }
    return this.#redialling;
  }

  async #redial(): Promise<void> {
    const { identity, host } = this.current;
    this.current = await fleet.seat(identity);
    host.drop();
  }
}

test('incident 11: a drain of 300 hosts is spread over its pace, costs the database a bounded rate, and leaves nobody unseated', async () => {
  const desktops: Desktop[] = [];
  while (desktops.length < HOSTS) {
    const more = await Promise.all(Array.from({ length: 20 }, () => fleet.seatIn('us-central1')));
    desktops.push(...more.map((seated) => new Desktop(seated)));
  }
  const told = () => desktops.filter(({ toldAt }) => toldAt !== null);
  const before = await calls();
  await fleet.database.query(
    `select relay_v1.set_admission('c1', 'migration-only'), relay_v1.start_drain('c1', $1, $2)`,
    [GRACE_MS, PACE_MS],
  );

  const startedAt = fleet.clock.now();
  const rate: { at: number; calls: number }[] = [];
  while (told().length < HOSTS && fleet.clock.now() - startedAt < 2 * PACE_MS) {
    await fleet.advance(STEP_MS, STEP_MS);
    await Promise.all(desktops.map((desktop) => desktop.follow()));
    rate.push({ at: fleet.clock.now(), calls: await calls() });
  }

  const moments = told()
    .map(({ toldAt }) => toldAt as number)
    .sort((a, b) => a - b);
  expect(moments).toHaveLength(HOSTS);
  expect((moments.at(-1) as number) - (moments[0] as number)).toBeGreaterThan(0.8 * PACE_MS);
  const evenShare = (HOSTS * WINDOW_MS) / PACE_MS;
  expect(mostWithin(moments, WINDOW_MS)).toBeLessThan(UNEVEN * evenShare);

  expect((await calls()) - before).toBeLessThan(CALLS_A_HOST * HOSTS);
  for (const { at, calls: so } of rate) {
    const since = rate.findLast((earlier) => at - earlier.at >= WINDOW_MS);
    if (since !== undefined) expect(so - since.calls).toBeLessThan(UNEVEN * evenShare * CALLS_A_HOST);
  }

  await fleet.advance(GRACE_MS + 10_000);
  const rows = await fleet.database.query(
    `select a.relay_host_id, a.cell_id, a.epoch::int, l.state from relay.assignment a
     left join relay.lease l on (l.user_id, l.relay_host_id, l.cell_id, l.epoch) = (a.user_id, a.relay_host_id, a.cell_id, a.epoch)`,
  );
  const rowOf = new Map(rows.map((row) => [row.relay_host_id, row]));
  for (const { current } of desktops) {
    const cell = fleet.cellAt(current.grant.cellUrl);
    expect(current.host.peer.isOpen).toBe(true);
    expect(cell.id).not.toBe('c1');
    expect(rowOf.get(current.identity.relayHostId)).toMatchObject({ cell_id: cell.id, epoch: 2, state: 'active' });
  }
  const controls = await Promise.all(
    fleet.cells.map(async ({ origin }) => total(await scrape(origin), 'orca_relay_controls')),
  );
  expect(controls[0]).toBe(0);
  expect(controls.reduce((sum, count) => sum + count, 0)).toBe(HOSTS);
  expect(fleet.problems()).toEqual([]);
});
