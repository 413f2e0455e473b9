import { afterAll, beforeAll, expect, test } from 'vitest';
import { book } from './support/booking.ts';
import { Fleet, type Node } from './support/fleet.ts';
import { type HostIdentity, newIdentity } from './support/identity.ts';
import { askAssign } from './support/parts.ts';
import { toReserve } from './support/reserve-mode.ts';
import { readFull, readSince } from './support/seat-feed.ts';
import { until } from './support/wait.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ cells: [{}, {}], directors: 2 });
  for (const { id } of fleet.cells) await toReserve(fleet, id, { intakePerSec: 1_000 });
});
afterAll(() => fleet?.stop());

/** What a director calls itself on the cells: it books a host, and the host's join names it. */
async function nameOf(director: Node): Promise<string> {
  const before = await Promise.all(fleet.cells.map((cell) => readFull(fleet, cell)));
  return until(
    `a booking of ${director.id}`,
    async () => {
      const identity = newIdentity();
      await askAssign(director.origin, await fleet.token(identity), identity);
      for (const [index, cell] of fleet.cells.entries()) {
        const { changes } = await readSince(fleet, cell, before[index]!);
        const booked = changes.find(
          ({ kind, relayHostId }) => kind === 'reserve' && relayHostId === identity.relayHostId,
        );
        if (booked?.reservedBy !== undefined) return booked.reservedBy;
      }
      return '';
    },
    (name) => name !== '',
  );
}

async function stateOn(cell: Node, { relayHostId }: HostIdentity): Promise<string | null> {
  const { full } = await readFull(fleet, cell);
  return full.find((seat) => seat.relayHostId === relayHostId)?.state ?? null;
}

async function rowOf({ relayHostId }: HostIdentity): Promise<{ cell: string; epoch: number; at: number } | null> {
  const [row] = await fleet.database.query(
    'select cell_id, epoch::int from relay.assignment where relay_host_id = $1',
    [relayHostId],
  );
  return row === undefined ? null : { cell: String(row.cell_id), epoch: Number(row.epoch), at: performance.now() };
}

test('P2 two directors book one epoch on two cells: the first row wins, the other seat is given up', async () => {
  const [c1, c2] = fleet.cells as [Node, Node];
  const names = [await nameOf(fleet.directors[0]!), await nameOf(fleet.directors[1]!)];
  expect(new Set(names).size).toBe(2);
  for (let round = 0; round < 4; round += 1) {
    const identity = newIdentity();
    const order = round % 2 === 0 ? [c1, c2] : [c2, c1];
    for (const [index, cell] of order.entries()) {
      const directorId = names[index]!;
      expect(await book(fleet, cell, identity, 5, { directorId })).toEqual({ outcome: 'ok' });
    }
    const hosts = await Promise.all(
      order.map((cell) => fleet.dial(identity, { cellUrl: cell.origin, assignmentEpoch: 5, lease: '' })),
    );
    const row = await until('a row', () => rowOf(identity), Boolean);
    const loser = order.find(({ id }) => id !== row?.cell)!;
    const winner = order.find(({ id }) => id === row?.cell)!;
    await until(
      'the other seat given up',
      () => stateOn(loser, identity),
      (state) => state === 'drain-only',
    );
    expect(await stateOn(winner, identity)).toBe('active');
    await fleet.advance(60_000);
    expect(await hosts[order.indexOf(loser)]!.peer.close()).toMatchObject({ code: 4409 });
    expect(hosts[order.indexOf(winner)]!.peer.isOpen).toBe(true);
    expect(await rowOf(identity)).toMatchObject({ cell: winner.id, epoch: 5 });
  }
});

test('P2 a host that takes new sockets while its seat is given up loses it all the same', async () => {
  const [c1, c2] = fleet.cells as [Node, Node];
  const names = [await nameOf(fleet.directors[0]!), await nameOf(fleet.directors[1]!)];
  const identity = newIdentity();
  const grantOf = (cell: Node) => ({ cellUrl: cell.origin, assignmentEpoch: 5, lease: '' });
  expect(await book(fleet, c1, identity, 5, { directorId: names[0]! })).toEqual({ outcome: 'ok' });
  expect(await book(fleet, c2, identity, 5, { directorId: names[1]! })).toEqual({ outcome: 'ok' });
  await fleet.dial(identity, grantOf(c1));
  await until('a row', () => rowOf(identity), Boolean);
  let host = await fleet.dial(identity, grantOf(c2));
  // By the time the order comes, the seat has another socket than the one it names.
  for (let left = 60; left > 0; left -= 1) {
    host = await fleet.dial(identity, grantOf(c2), { previous: host.previous }).catch(() => host);
    await new Promise((resolve) => setTimeout(resolve, 40));
  }
  await until(
    'the seat given up',
    () => stateOn(c2, identity),
    (state) => state === 'drain-only',
  );
});
