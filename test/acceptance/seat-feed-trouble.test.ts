import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type AccountWhereabouts, whereabouts } from '../../contract/whereabouts.ts';
import { type FeedDoor, feedDoor } from './support/feed-door.ts';
import { Fleet, type Node, type Seated } from './support/fleet.ts';
import { type HostIdentity, newIdentity } from './support/identity.ts';
import { askAssign, type Grant } from './support/parts.ts';
import { toReserve } from './support/reserve-mode.ts';
import { scrape, total } from './support/scrape.ts';
import { readFull, readSince } from './support/seat-feed.ts';
import { until } from './support/wait.ts';

/** One reserve cell; what its director asks of it passes a door, and hosts dial behind that. */
let fleet: Fleet;
let door: FeedDoor;
let behind: Node;
beforeAll(async () => {
  fleet = await Fleet.start({ directors: 0, tokenLifeSeconds: 3_600 });
  behind = fleet.cell();
  door = await feedDoor(() => behind.origin);
  await behind.stop();
  Object.assign(behind.env, { ORCA_RELAY_CELL_URL: door.origin, ORCA_RELAY_PUBLIC_URL: door.origin });
  await fleet.database.query(`select relay_v1.register_cell('c1', $1, 'us-central1', 900)`, [door.origin]);
  await behind.start();
  await fleet.heard();
  await (await fleet.addDirector()).start();
  await toReserve(fleet, 'c1', { intakePerSec: 1_000 });
});
afterEach(() => {
  door.hasFeed = true;
});
afterAll(async () => {
  try {
    await fleet?.stop();
  } finally {
    await door?.stop();
  }
});

async function seat(): Promise<Seated> {
  const identity = newIdentity();
  const token = await fleet.token(identity);
  // A director that has just started has no tokens to book with.
  const asked = await until(
    'a place',
    () => askAssign(fleet.director.origin, token, identity),
    ({ status }) => status === 200,
  );
  const grant = asked.body as unknown as Grant;
  const host = await fleet.dial(identity, grant, { token, origin: behind.origin, relayOrigin: grant.cellUrl });
  return { identity, grant, host };
}

async function find({ relayHostId }: HostIdentity): Promise<AccountWhereabouts | undefined> {
  const reply = await fetch(`${fleet.director.origin}/v1/admin/hosts/${relayHostId}`);
  return whereabouts.parse(await reply.json()).accounts[0];
}
const saidBy = async ({ identity }: Pick<Seated, 'identity'>) => (await find(identity))?.owner?.saidBy ?? null;
const isShown = (seated: Pick<Seated, 'identity'>) =>
  until(
    'its feed shows it',
    () => saidBy(seated),
    (by) => by === 'fresh',
  );
const polls = async (outcome: string) =>
  total(await scrape(fleet.director.origin), 'orca_relay_seat_feed_polls_total', { outcome });
const fullPages = async () => total(await scrape(behind.origin), 'orca_relay_seat_feed_pages_total', { kind: 'full' });

async function staysWhereItIs({ identity, grant, host }: Seated): Promise<void> {
  const asked = await until(
    'granted again',
    async () => askAssign(fleet.director.origin, await fleet.token(identity), identity, { reconnect: true }),
    ({ status }) => status === 200,
  );
  expect(asked.body).toMatchObject({ cellUrl: grant.cellUrl, assignmentEpoch: grant.assignmentEpoch });
  expect(host.peer.isOpen).toBe(true);
}

describe('what goes wrong with the feed of a cell (86)', () => {
  test('86 a change that is lost on the way: the seats stay, everything is asked for once, and nobody is missing', async () => {
    const first = await seat();
    await isShown(first);
    const [full, gaps, lost] = [await fullPages(), await polls('cursor_gap'), door.lost()];
    door.loseOne();
    const second = await seat();
    const shown: (string | null)[] = [];
    await until(
      'the gap seen',
      async () => {
        shown.push(await saidBy(first));
        return polls('cursor_gap');
      },
      (count) => count > gaps,
    );
    await isShown(second);
    await isShown(first);
    expect(shown).not.toContain(null);
    expect(door.lost()).toBe(lost + 1);
    expect(await polls('cursor_gap')).toBe(gaps + 1);
    expect(await fullPages()).toBe(full + 1);
    await staysWhereItIs(first);
  });

  test('86 a cell that has no feed: alive, its hosts are found by their rows and go nowhere; with a feed again it is told whole', async () => {
    const seated = await seat();
    await isShown(seated);
    await until(
      'its row',
      async () => (await find(seated.identity))?.row?.epoch,
      (epoch) => epoch === seated.grant.assignmentEpoch,
    );
    const full = await fullPages();
    door.hasFeed = false;
    // The move to where it sits was announced, and counts for a while. Shorter than the window of the dead man.
    await fleet.advance(40_000, 2_000);
    await until(
      'the row speaks',
      () => saidBy(seated),
      (by) => by === 'row',
    );
    await staysWhereItIs(seated);
    door.hasFeed = true;
    await isShown(seated);
    expect(await fullPages()).toBe(full + 1);
    await staysWhereItIs(seated);
  });

  test('86 the list of cells cannot be read: the last one is kept, and its cells are polled as ever', async () => {
    const first = await seat();
    await isShown(first);
    await fleet.database.query('revoke execute on function relay_v1.cells from relay_director');
    try {
      await fleet.advance(40_000, 2_000);
      const before = await polls('ok');
      const second = await seat();
      await isShown(second);
      expect(await polls('ok')).toBeGreaterThan(before);
      expect(await saidBy(first)).toBe('fresh');
    } finally {
      await fleet.database.query('grant execute on function relay_v1.cells to relay_director');
    }
    expect(fleet.problems()).toEqual([]);
  });
});

test('O16 a booking whose answer is lost is made once: the next one names another epoch, and the host has one seat', async () => {
  const before = await readFull(fleet, behind);
  const identity = newIdentity();
  const token = await fleet.token(identity);
  let lost = false;
  void door.loseAnswer().then(() => {
    lost = true;
  });
  const ask = () => askAssign(fleet.director.origin, token, identity);
  await until(
    'a booking without an answer',
    async () => {
      expect((await ask()).status).toBe(503);
      return lost;
    },
    (seen) => seen,
  );
  const asked = await until('a place', ask, ({ status }) => status === 200);
  const grant = asked.body as unknown as Grant;
  await fleet.dial(identity, grant, { token, origin: behind.origin, relayOrigin: grant.cellUrl });
  await isShown({ identity });

  const { changes } = await readSince(fleet, behind, before);
  const own = changes.filter(({ relayHostId }) => relayHostId === identity.relayHostId);
  expect(own.map(({ kind, epoch }) => [kind, epoch])).toEqual([
    ['reserve', 1],
    ['reserve', 2],
    ['join', 2],
  ]);
  expect(await find(identity)).toMatchObject({
    owner: { epoch: 2 },
    seats: [{ cellId: 'c1', epoch: 2, state: 'active' }],
  });
});
