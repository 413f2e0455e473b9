import { expect, test } from 'vitest';
import { placementEvent } from '../../server/director/placement-events.ts';
import { hostDigest } from '../../server/log.ts';
import type { AssignResult } from '../../server/sql-interface.ts';

const asked = { user_id: 'user', relay_host_id: 'host' };
const moved: AssignResult = {
  outcome: 'granted',
  rule: 'roll-isolated',
  cause: null,
  cell_id: 'y',
  cell_url: 'https://y',
  region: 'east',
  epoch: 5,
  lease_expires_at: 1,
  moved: true,
  from_cell_id: 'x',
  verdict_wanted: false,
  decided_at: 0,
};
const kept: AssignResult = { ...moved, cell_id: 'x', epoch: 4, moved: false, from_cell_id: null };
const host = hostDigest('user', 'host');

test.each(['roll-isolated', 'roll-replaced'])('%s: a host was moved off a cell that is rolled', (rule) => {
  expect(placementEvent(asked, { ...moved, rule })).toEqual({
    event: 'orca_relay_sticky_replaced_off_isolated_cell',
    host,
    fromCellId: 'x',
    toCellId: 'y',
    region: 'east',
  });
});

test('roll-isolated and kept: the move is put off', () => {
  expect(placementEvent(asked, kept)).toEqual({
    event: 'orca_relay_sticky_replacement_deferred',
    host,
    fromCellId: 'x',
    region: 'east',
  });
});

test('dead-reserve: a host left a dead reserve cell, with the counts that it was judged by (18)', () => {
  const poll_evidence = { cell_id: 'x', dead: true, polled: 6, failing: 1 };
  expect(placementEvent({ ...asked, poll_evidence }, { ...moved, rule: 'dead-reserve' })).toMatchObject({
    event: 'orca_relay_dead_reserve_cell_host_replaced',
    fromCellId: 'x',
    toCellId: 'y',
    evidence: poll_evidence,
  });
});

test.each<AssignResult>([
  { ...moved, rule: 'dead-uncapped' },
  { ...kept, rule: 'sticky' },
  { ...moved, outcome: 'would_place' },
  { ...moved, outcome: 'busy', rule: 'row-busy', moved: false },
])('$outcome by $rule has no event of its own', (result) => {
  expect(placementEvent(asked, result)).toBeNull();
});
