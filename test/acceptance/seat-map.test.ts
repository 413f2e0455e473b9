import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createFetchPage } from '../../server/director/seat-feed-client.ts';
import { type CellEvent, SeatMap } from '../../server/director/seat-map.ts';
import { SeatPoller } from '../../server/director/seat-poller.ts';
import { ServiceTokens } from '../../server/director/service-tokens.ts';
import { createLogger } from '../../server/log.ts';
import { createMetrics } from '../../server/metrics.ts';
import { rowOf } from '../director/support/feed-cell.ts';
import { Fleet } from './support/fleet.ts';
import { until } from './support/wait.ts';

/** A director's map of real cells, over real connections. */

let fleet: Fleet;
let map: SeatMap;
let events: CellEvent[];

beforeAll(async () => {
  fleet = await Fleet.start();
});
afterAll(() => fleet?.stop());
beforeEach(() => {
  map = new SeatMap(fleet.clock, { retentionMs: 60_000 });
  events = [];
  map.onCell((event) => events.push(event));
});

/** Polls the fleet's cells while `work` runs. */
async function polling(signingKey: string, work: () => Promise<void>): Promise<void> {
  const list = fleet.cells.map(({ id, origin }) => rowOf(id, { url: origin }));
  const poller = new SeatPoller({
    map,
    cells: () => list,
    feedCells: 'all',
    placementOn: true,
    fetchPage: createFetchPage(new ServiceTokens(signingKey, 'a-director', fleet.clock)),
    log: createLogger({ role: 'director', level: 'silent' }),
    metrics: createMetrics(),
    clock: fleet.clock,
    peerTime: fleet.clock,
  });
  poller.start();
  try {
    await work();
  } finally {
    await poller.stop();
  }
}

describe('a director reads who sits on a cell', () => {
  test('86, O9 a host that sits, one that leaves, a cell that goes and comes back', async () => {
    const { identity, grant } = await fleet.seat();
    await polling(fleet.signingKey, async () => {
      await until('the map complete', () => map.complete(), Boolean);
      expect(map.owner(identity)).toMatchObject({ cellId: 'c1', epoch: grant.assignmentEpoch, freshness: 'fresh' });
      const other = await fleet.seat();
      await until(
        'the other host',
        () => map.owner(other.identity)?.cellId,
        (cellId) => cellId === 'c1',
      );
      other.host.drop();
      await fleet.advance(31_000);
      await until(
        'it gone',
        () => map.leavers(other.identity),
        (left) => left.length === 1,
      );

      await fleet.cell().stop();
      await until(
        'the cell unanswered',
        () => map.owner(identity)?.freshness,
        (held) => held !== 'fresh',
      );
      expect(map.owner(identity)?.cellId).toBe('c1');
      await fleet.advance(60_000);
      expect(map.owner(identity)).toBeNull();
      expect(map.floor(identity)).toBe(grant.assignmentEpoch);
      await fleet.cell().start();
      await until(
        'the cell back',
        () => map.cell('c1')?.status,
        (status) => status === 'live',
      );
      const told = events.map((event) => (event.type === 'unavailable' ? event.reason : event.type));
      expect(told).toEqual(['open', 'retention_expired', 'open', 'gap']);
    });
  });

  test('O4, O23 a director with another key is refused by a cell that lives', async () => {
    await polling('another signing key, also of thirty-two bytes', async () => {
      await until(
        'the refusal',
        () => [...map.failures().keys()],
        ([failure]) => failure === 'unauthorized',
      );
      expect(map.complete()).toBe(false);
    });
  });
});
