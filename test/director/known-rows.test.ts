import { expect, test } from 'vitest';
import { LIMITS } from '../../contract/limits.ts';
import { KnownRows } from '../../server/director/known-rows.ts';
import { HandClock } from '../support/hand-clock.ts';
import { hostOf } from './support/feed.ts';

const host = hostOf(1);

test('a row is known for 2 h, and its epoch never falls whatever order answers come in (P1)', () => {
  const clock = new HandClock();
  const rows = new KnownRows(clock);
  rows.note(host, { cellId: 'X', epoch: 6 });
  rows.note(host, { cellId: 'Y', epoch: 5 });
  expect(rows.of(host)).toMatchObject({ cellId: 'X', epoch: 6 });
  clock.advance(LIMITS.rowFloorMs - 1);
  expect(rows.of(host)).not.toBeNull();
  clock.advance(1);
  expect(rows.of(host)).toBeNull();
});

test('the 100 000 rows seen last are known; none after changes may have been missed (V1)', () => {
  const rows = new KnownRows(new HandClock());
  for (let n = 0; n <= LIMITS.rememberedHosts; n++) rows.note(hostOf(n), { cellId: 'X', epoch: 1 });
  expect(rows.of(hostOf(0))).toBeNull();
  expect(rows.of(host)).not.toBeNull();
  rows.clear();
  expect(rows.of(host)).toBeNull();
});
