import type { BookingItem, DemoteRequest } from '../../../contract/booking.ts';
import type { Fleet, Node } from './fleet.ts';
import type { HostIdentity } from './identity.ts';
import { type Granted, post } from './parts.ts';
import { type HostDial, RawHost } from './raw-host.ts';
import { directorToken } from './seat-feed.ts';

/** What a director says to a cell, with its token. */
export async function askCell(fleet: Fleet, cell: Node, path: string, body: unknown): Promise<Granted> {
  return post(cell.origin, path, body, { authorization: `Bearer ${await directorToken(fleet, cell)}` });
}

export function bookingFor(identity: HostIdentity, epoch: number, over: Partial<BookingItem> = {}): BookingItem {
  return { userId: identity.userId, relayHostId: identity.relayHostId, epoch, ttlMs: 30_000, ...over };
}

/** The outcomes, in order. */
export async function bookSeats(
  fleet: Fleet,
  cell: Node,
  items: BookingItem[],
  over: { dryRun?: boolean; directorId?: string } = {},
): Promise<unknown[]> {
  const reply = await askCell(fleet, cell, '/internal/reserve', { v: 1, directorId: 'a-director', items, ...over });
  if (reply.status !== 200) throw new Error(`the booking answered ${reply.status} ${JSON.stringify(reply.body)}`);
  return (reply.body.results as { outcome: string; epoch?: number }[]).map(({ outcome, epoch }) =>
    epoch === undefined ? outcome : [outcome, epoch],
  );
}

export async function demote(fleet: Fleet, cell: Node, seat: Omit<DemoteRequest, 'v'>): Promise<unknown> {
  const { userId, relayHostId, epoch, joinedAt } = seat;
  const reply = await askCell(fleet, cell, '/internal/demote', { v: 1, userId, relayHostId, epoch, joinedAt });
  return reply.status === 200 ? reply.body.outcome : reply;
}

export async function dialTo(
  fleet: Fleet,
  cell: Node,
  identity: HostIdentity,
  epoch: number,
  over: Partial<HostDial> = {},
): Promise<HostDial> {
  const token = await fleet.token(identity);
  return { origin: cell.origin, epoch, token, now: () => fleet.clock.wallNow(), ...over };
}

/** Dials a cell at an epoch and proves itself, with no director asked. */
export async function connectTo(
  fleet: Fleet,
  cell: Node,
  identity: HostIdentity,
  epoch: number,
  over: Partial<HostDial> = {},
): Promise<RawHost> {
  return RawHost.connect(identity, await dialTo(fleet, cell, identity, epoch, over));
}

/** Books a seat and takes it. */
export async function seatByBooking(fleet: Fleet, cell: Node, identity: HostIdentity, epoch: number): Promise<RawHost> {
  const [outcome] = await bookSeats(fleet, cell, [bookingFor(identity, epoch)]);
  if (outcome !== 'ok') throw new Error(`the booking answered ${JSON.stringify(outcome)}`);
  return connectTo(fleet, cell, identity, epoch);
}
