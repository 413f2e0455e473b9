import { expect, test } from 'vitest';
import type { CellViews } from '../../contract/cell-views.ts';
import type { Paint } from '../../server/dev/child-log.ts';
import { eventLine } from '../../server/operator/event-lines.ts';
import { type FleetRow, fleetTable, pollsOf, withheldWords } from '../../server/operator/fleet-table.ts';

/** How a person is told that the hosts of a silent reserve cell wait (25). */

const plain: Paint = (_, text) => text;
const region = { reason: 'region', feedCells: 9, failing: 3, regionFeedCells: 5, regionFailing: 3, forMs: 130_000 };
const row: FleetRow = {
  cell_id: 'x',
  region: 'asia',
  admission: 'general',
  admit_mode: 'reserve',
  effective_mode: 'reserve',
  state: 'unheard',
  heard_age_ms: 130_000,
  load: 4,
  unit_limit: 100,
  free_units: 96,
  capped: true,
  draining: false,
  drain_progress: null,
  roll_age_ms: null,
  admission_generation: 1,
};
const views: CellViews = {
  v: 1,
  at: 1,
  cells: [{ cellId: 'x', feed: 'unverifiable', polledAgeMs: 130_000, verdict: 'withheld' }],
  withheld: [{ cellId: 'x', ...region }],
};

test.each([
  ['region', 'verdict withheld (region: 3 of 5 fail) for 2 min'],
  ['fleet', 'verdict withheld (fleet: 3 of 9 fail) for 2 min'],
  ['sample', 'verdict withheld (too few cells: 9 have a feed) for 2 min'],
])('the reason %s', (reason, words) => {
  expect(withheldWords({ ...region, reason })).toBe(words);
});

test('the fleet shows it beside the cell, and says when no director was asked', () => {
  expect(fleetTable([row], { views }, plain)).toContain('verdict withheld (region: 3 of 5 fail) for 2 min, reserve');
  const unasked = fleetTable([row], { unasked: 'no director' }, plain);
  expect(unasked).not.toContain('withheld');
  expect(unasked).toMatch(/What directors' polls find is unknown: no director$/);
  const withheld = { cellId: 'x', ...region };
  expect(pollsOf('x', { views })).toEqual({
    feed: 'unverifiable',
    polled_age_ms: 130_000,
    verdict: 'withheld',
    withheld,
  });
  expect([pollsOf('y', { views }), pollsOf('x', { unasked: 'no director' })]).toEqual([null, null]);
});

test('events tell when it begins and when it is over, and a reader that comes later how it stands', () => {
  const data = { cellId: 'x', ...region, at: Date.UTC(2030, 0, 1) };
  const begins = eventLine({ event: 'verdict_withheld', data: { ...data, forMs: 0 } }, 0, plain);
  expect(begins).toMatch(/ x +verdict withheld \(region: 3 of 5 fail\)$/);
  const over = eventLine({ event: 'verdict_given', data: { ...data, verdict: 'dead' } }, 0, plain);
  expect(over).toMatch(/it is dead, its hosts may leave/);
  const hello = { resumed: false, cells: [], withheld: views.withheld };
  expect(eventLine({ event: 'hello', data: hello }, 0, plain)).toContain(
    'x: verdict withheld (region: 3 of 5 fail) for 2 min.',
  );
});
