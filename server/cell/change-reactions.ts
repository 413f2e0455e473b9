import { LIMITS } from '../../contract/index.ts';
import type { Change, ChangeKind } from '../sql-interface.ts';
import type { CellCore } from './cell-core.ts';

/** What a cell does about a change that concerns it; what operators want is read by `cell_orders`. */
export const CHANGE_REACTIONS: Record<ChangeKind, 'leave-seat' | 'read-orders' | 'nothing'> = {
  placed: 'nothing',
  moved: 'leave-seat',
  recorded: 'leave-seat',
  granted: 'nothing',
  lease_ended: 'nothing',
  admission: 'read-orders',
  mode: 'read-orders',
  flags: 'read-orders',
  effective_mode: 'nothing',
  drain: 'read-orders',
  migration: 'nothing',
  fence: 'nothing',
  cell_registered: 'nothing',
  cell_retired: 'nothing',
  incarnation: 'nothing',
};

export function reactToChange(core: CellCore, change: Change): void {
  const reaction = CHANGE_REACTIONS[change.kind];
  if (reaction === 'leave-seat') leaveSeat(core, change);
  else if (reaction === 'read-orders' && change.to_cell === core.identity.cellId) {
    core.metrics.changes.inc({ kind: change.kind, action: 'read-orders' });
    core.orders.read();
  }
}

/** A host that now belongs elsewhere, or here at a higher epoch, loses the seat it has here: at once, or when its lease retires. */
function leaveSeat(core: CellCore, change: Change): void {
  if (change.from_cell !== core.identity.cellId) return;
  if (change.user_id === null || change.relay_host_id === null || change.epoch === null) return;
  const host = { userId: change.user_id, relayHostId: change.relay_host_id };
  // An activation at the old epoch may be on its way back from the database.
  core.seats.noteLeft(host, change.epoch);
  const session = core.seats.of(host);
  if (session === undefined || session.epoch >= change.epoch) return;
  const retireUntil = change.detail?.retire_until;
  if (typeof retireUntil === 'number' && change.detail?.forced !== true) {
    core.metrics.changes.inc({ kind: change.kind, action: 'retire' });
    // Both times are the database's own.
    session.drain(Math.min(retireUntil - change.at, LIMITS.maxGraceMs), 'retired');
    return;
  }
  core.metrics.changes.inc({ kind: change.kind, action: 'close' });
  session.end('moved');
}
