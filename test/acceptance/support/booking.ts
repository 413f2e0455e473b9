import { demoteReply, reserveReply } from '../../../contract/booking.ts';
import { LIMITS } from '../../../contract/index.ts';
import type { Fleet, Node } from './fleet.ts';
import type { HostIdentity } from './identity.ts';
import { post } from './parts.ts';
import { directorToken } from './seat-feed.ts';

type Host = Pick<HostIdentity, 'userId' | 'relayHostId'>;

export interface BookingAsk {
  sticky?: boolean;
  dryRun?: boolean;
  directorId?: string;
  ttlMs?: number;
}

async function ask(fleet: Fleet, cell: Node, path: string, body: object): Promise<unknown> {
  const authorization = `Bearer ${await directorToken(fleet, cell)}`;
  const reply = await post(cell.origin, path, { v: 1, ...body }, { authorization });
  if (reply.status !== 200) throw new Error(`${path} answered ${reply.status} ${JSON.stringify(reply.body)}`);
  return reply.body;
}

/** Asks a cell for a seat as a director does; its word for it, with the epoch it knows if that is the newer one. */
export async function book(
  fleet: Fleet,
  cell: Node,
  { userId, relayHostId }: Host,
  epoch: number,
  { sticky, dryRun = false, directorId = 'a-director', ttlMs = LIMITS.bookingTtlMs }: BookingAsk = {},
): Promise<{ outcome: string; epoch?: number | undefined }> {
  const items = [{ userId, relayHostId, epoch, ttlMs, sticky }];
  const { results } = reserveReply.parse(await ask(fleet, cell, '/internal/reserve', { directorId, dryRun, items }));
  const [result] = results;
  if (result === undefined) throw new Error('one item and no result');
  return result;
}

export async function demote(
  fleet: Fleet,
  cell: Node,
  { userId, relayHostId }: Host,
  seat: { epoch: number; joinedAt: number },
): Promise<string> {
  const { epoch, joinedAt } = seat;
  const body = { userId, relayHostId, epoch, joinedAt };
  return demoteReply.parse(await ask(fleet, cell, '/internal/demote', body)).outcome;
}
