import { LIMITS } from '../../contract/limits.ts';
import { relayHostId as hostIdText } from '../../contract/scalars.ts';
import type { AccountWhereabouts, Whereabouts } from '../../contract/whereabouts.ts';
import { toDatabaseError } from '../database.ts';
import { type Reply, type Request, route } from '../http.ts';
import { hostDigest } from '../log.ts';
import { browserRefusal } from '../readers.ts';
import type { RoleContext } from '../role-part.ts';
import { pathTail } from '../socket-route.ts';
import type { HostRow } from '../sql-interface.ts';
import type { App } from '../uws.ts';
import type { RowReading } from './owner-lookup.ts';
import type { Owners } from './owners.ts';
import type { PendingMoves } from './pending-moves.ts';
import type { HostName, SeatView } from './seat-view.ts';

/** `GET /v1/admin/hosts/<relayHostId>`: where a host is, for the person who looks for it. Works with Postgres away. */

const PREFIX = '/v1/admin/hosts/';
const ROW_TIMEOUT_MS = 3_000;

export interface WhereaboutsParts {
  context: RoleContext;
  owners: Owners;
  pending: PendingMoves;
  seats: SeatView;
}

type Rows = { rows: HostRow[] } | { failed: string };

export function registerWhereabouts(app: App, { context, ...parts }: WhereaboutsParts): void {
  const { clock, config, db, metrics } = context;
  const asked = metrics.counter('orca_relay_whereabouts_total', 'Times somebody asked where a host is', ['outcome']);

  async function readRows(relayHostId: string): Promise<Rows> {
    try {
      return { rows: await db.call('host_row', { relay_host_id: relayHostId }, { timeoutMs: ROW_TIMEOUT_MS }) };
    } catch (error) {
      return { failed: toDatabaseError(error).kind };
    }
  }

  async function find(relayHostId: string): Promise<Whereabouts> {
    const read = await readRows(relayHostId);
    return {
      v: 1,
      relayHostId,
      at: Math.round(clock.wallNow()),
      store: 'rows' in read ? { ok: true } : { ok: false, reason: read.failed },
      mapComplete: parts.seats.complete(),
      accounts: accountsOf(relayHostId, read, parts),
    };
  }

  route(app, 'get', `${PREFIX}*`, async (request: Request): Promise<Reply> => {
    const refused = browserRefusal(config.metricsKey, request);
    if (refused !== null) {
      asked.inc({ outcome: refused });
      return { status: refused === 'unauthorized' ? 401 : 403, json: { error: refused } };
    }
    const id = hostIdText.safeParse(pathTail(request.path, PREFIX));
    if (!id.success) {
      asked.inc({ outcome: 'invalid_request' });
      return { status: 400, json: { error: 'invalid_request' } };
    }
    const found = await find(id.data);
    const known = found.accounts.some(({ owner }) => owner !== null);
    asked.inc({ outcome: known ? 'found' : 'owner_unknown' });
    return known ? { status: 200, json: found, headers: NO_STORE } : unknown(found);
  });
}

const NO_STORE = { 'cache-control': 'no-store' };

/** A miss is no absence, and the next poll of the cells may know more (F7, F8). */
function unknown(found: Whereabouts): Reply {
  const retryAfterMs = LIMITS.feedPollMs;
  return {
    status: 503,
    json: {
      error: 'owner_unknown',
      retryAfterMs,
      ...(found.store.ok ? {} : { cause: 'store_unavailable' }),
      ...found,
    },
    headers: { ...NO_STORE, 'retry-after': String(Math.ceil(retryAfterMs / 1_000)) },
  };
}

type Known = Omit<WhereaboutsParts, 'context'>;

function accountsOf(relayHostId: string, read: Rows, known: Known): AccountWhereabouts[] {
  const rows = new Map(('rows' in read ? read.rows : []).map((row) => [row.user_id, row]));
  const users = new Set([...rows.keys(), ...known.seats.named(relayHostId).map(({ userId }) => userId)]);
  return [...users].map((userId) => {
    const row = rows.get(userId);
    const reading = row === undefined ? ('rows' in read ? 'none' : 'unavailable') : readingOf(row, known.owners);
    return accountOf({ userId, relayHostId }, row, reading, known);
  });
}

function accountOf(
  host: HostName,
  row: HostRow | undefined,
  reading: RowReading,
  { owners, pending, seats }: Known,
): AccountWhereabouts {
  const verdict = owners.judge(host, reading);
  const named = 'owner' in verdict ? verdict.owner : null;
  return {
    host: hostDigest(host.userId, host.relayHostId),
    owner: named && {
      cellId: named.cellId,
      epoch: named.epoch,
      cellUrl: owners.cell(named.cellId)?.url ?? null,
      saidBy: named.source,
      ageMs: Math.round(named.ageMs),
      live: named.live,
    },
    ...('unknown' in verdict ? { unknown: verdict.unknown } : {}),
    row: row === undefined ? null : rowOf(row),
    seats: seats.seats(host).map(({ cellId, epoch, generation, state, joinedAt }) => {
      const polledAgeMs = seats.cell(cellId)?.polledAgeMs ?? null;
      return { cellId, epoch, generation, state, joinedAt, ageMs: polledAgeMs && Math.round(polledAgeMs) };
    }),
    left: seats.leavers(host).map(({ cellId, epoch, closeCode, ageMs }) => ({
      cellId,
      epoch,
      ...(closeCode === undefined ? {} : { closeCode }),
      ageMs: Math.round(ageMs),
    })),
    pending: pendingOf(host, pending),
    floor: seats.floor(host),
    bookedEpoch: seats.bookedEpoch(host),
  };
}

function pendingOf(host: HostName, pending: PendingMoves): AccountWhereabouts['pending'] {
  const move = pending.of(host);
  return move && { ...move, ageMs: Math.round(move.ageMs) };
}

function readingOf({ cell_id: cellId, epoch }: HostRow, owners: Owners): RowReading {
  const home = owners.cell(cellId);
  const heard = home?.heard_age_ms ?? Number.POSITIVE_INFINITY;
  return { cellId, epoch, live: home?.ready === true && heard < LIMITS.heartbeatTtlMs };
}

function rowOf(row: HostRow): NonNullable<AccountWhereabouts['row']> {
  const { migration } = row;
  return {
    cellId: row.cell_id,
    epoch: row.epoch,
    region: row.region,
    admitMode: row.admit_mode,
    lastActivityAt: row.last_activity_at,
    leases: row.leases.map(({ cell_id: cellId, epoch, state, units, expires_at: expiresAt }) => ({
      cellId,
      epoch,
      state,
      units,
      expiresAt,
    })),
    migration: migration && {
      epoch: migration.epoch,
      from: migration.source_cell,
      to: migration.target_cell,
      pinned: migration.pinned,
      registered: migration.registered,
      openedAt: migration.opened_at,
    },
  };
}
