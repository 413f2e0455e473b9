import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet, type Seated } from './support/fleet.ts';
import { type HostIdentity, newIdentity } from './support/identity.ts';
import { askAssign, connectPair, installDevice } from './support/parts.ts';
import { toDb, toReserve } from './support/reserve-mode.ts';
import { readFeed } from './support/seat-feed.ts';
import { until } from './support/wait.ts';

/** One cell, and a director that places by the database alone. */
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ env: { ORCA_RELAY_RESERVE_PLACEMENT: 'off' } });
});
afterAll(() => fleet?.stop());

const cell = () => fleet.cell();

async function ask(identity: HostIdentity) {
  return askAssign(fleet.director.origin, await fleet.token(identity), identity, { reconnect: true });
}

/** As the database has the host, down to which transaction wrote its row. */
async function traces({ identity }: Pick<Seated, 'identity'>): Promise<unknown> {
  const host = [identity.userId, identity.relayHostId];
  const where = 'where user_id = $1 and relay_host_id = $2';
  return Promise.all([
    fleet.database.query(`select xmin::text, cell_id, epoch::int from relay.assignment ${where}`, host),
    fleet.database.query(`select xmin::text from relay.lease ${where}`, host),
    fleet.database.query(`select id from relay.change ${where} order by id`, host),
  ]);
}

/** Time passes, and a director that books seats is heard. */
async function advanceHeard(ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 15_000) {
    await fleet.advance(Math.min(left, 15_000));
    await readFeed(fleet, cell(), '?reserver=1');
  }
}

describe('the database path and reserve cells (91)', () => {
  test('91 a host of a live reserve cell is answered its place, and nothing is written', async () => {
    const seated = await fleet.seat();
    await toReserve(fleet, 'c1');
    seated.host.drop();
    await advanceHeard(150_000);
    const before = await traces(seated);
    const asked = await until(
      'granted',
      () => ask(seated.identity),
      ({ status }) => status === 200,
    );
    expect(asked.body).toMatchObject({ cellUrl: cell().origin, assignmentEpoch: seated.grant.assignmentEpoch });
    expect(await traces(seated)).toEqual(before);
    await fleet.dial(seated.identity, seated.grant);
  });

  test('91 a new host is placed there by its own row of less than 45 s that says db alone: not before it tripped, nor by an old one', async () => {
    const identity = newIdentity();
    expect(await ask(identity)).toMatchObject({ status: 503, body: { error: 'relay_capacity_exhausted' } });

    // Longer than the dead man's window of any cell.
    await fleet.advance(125_000);
    const tripped = await until(
      'tripped',
      () => readFeed(fleet, cell()),
      (page) => page.admitModeRaw === 'db',
    );
    expect(tripped.flagsApplied).toMatchObject({ flags: { admitMode: 'reserve' } });
    const placed = await until(
      'placed on the tripped cell',
      () => ask(identity),
      ({ status }) => status === 200,
    );
    const grant = placed.body as { cellUrl: string; assignmentEpoch: number; lease: string };
    expect(grant.cellUrl).toBe(cell().origin);
    const host = await fleet.dial(identity, grant);
    expect(await fleet.leases(identity)).toMatchObject([{ cell_id: 'c1', state: 'active' }]);
    const device = await installDevice(host);
    await connectPair(host, device.resumeToken);

    // Its heart beats on, and what it says of its mode ages.
    await fleet.database.query('revoke execute on function relay_v1.record_effective_mode from relay_cell');
    await fleet.advance(46_000);
    expect(await ask(newIdentity())).toMatchObject({ status: 503, body: { error: 'relay_capacity_exhausted' } });
    await fleet.database.query('grant execute on function relay_v1.record_effective_mode to relay_cell');
    await fleet.advance(16_000);
    await until(
      'placed there again',
      () => ask(newIdentity()),
      ({ status }) => status === 200,
    );

    await toDb(fleet, 'c1');
    expect(host.peer.isOpen).toBe(true);
    expect((await fleet.seat()).grant.cellUrl).toBe(cell().origin);
    expect(fleet.problems()).toEqual([]);
  });
});
