import { hostDigest } from '../log.ts';
import type { AssignResult, ParamsOf } from '../sql-interface.ts';

type EventName = `orca_relay_${string}`;

/**
 * What an operator looks for in the log when hosts leave a cell that is rolled or dead, by the rule of 03-decisions.md that
 * decided. Said after the commit, so never for a move that did not come to be.
 */
const MOVED: Readonly<Record<string, EventName>> = {
  'roll-isolated': 'orca_relay_sticky_replaced_off_isolated_cell',
  'roll-replaced': 'orca_relay_sticky_replaced_off_isolated_cell',
  'dead-reserve': 'orca_relay_dead_reserve_cell_host_replaced',
};
/** Kept, since no cell has room for it. */
const KEPT: Readonly<Record<string, EventName>> = { 'roll-isolated': 'orca_relay_sticky_replacement_deferred' };

export type PlacementEvent = {
  event: EventName;
  host: string;
  fromCellId: string | null;
  toCellId?: string | null;
  region: string | null;
  evidence?: unknown;
};

/** The event of an answer of assign, null if it has none of its own. */
export function placementEvent(
  asked: Pick<ParamsOf<'assign'>, 'user_id' | 'relay_host_id' | 'poll_evidence'>,
  result: AssignResult,
): PlacementEvent | null {
  if (result.outcome !== 'granted') return null;
  const event = (result.moved ? MOVED : KEPT)[result.rule];
  if (event === undefined) return null;
  const host = hostDigest(asked.user_id, asked.relay_host_id);
  if (!result.moved) return { event, host, fromCellId: result.cell_id, region: result.region };
  return {
    event,
    host,
    fromCellId: result.from_cell_id,
    toCellId: result.cell_id,
    region: result.region,
    ...(result.rule === 'dead-reserve' ? { evidence: asked.poll_evidence } : {}),
  };
}
