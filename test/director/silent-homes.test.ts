import { beforeEach, describe, expect, test } from 'vitest';
import type { Decision } from '../../server/director/find-place.ts';
import { SilentHomes } from '../../server/director/silent-homes.ts';
import { HandClock } from '../support/hand-clock.ts';

const SLOT_MS = 20;

let clock: HandClock;
/** Until the verdict on cell c1; c2 answers. */
let judgedInMs: number | null;
let homes: SilentHomes;
beforeEach(() => {
  clock = new HandClock();
  judgedInMs = 40_000;
  homes = new SilentHomes({
    clock,
    judgedInMs: (cellId) => (cellId === 'c1' ? judgedInMs : null),
    slotMs: () => SLOT_MS,
  });
});

const kept = (cellId: string, from?: string): Decision => ({
  granted: {
    seat: { cellId, cellUrl: `http://${cellId}`, epoch: 4 },
    lane: 'sticky',
    rule: 'reserve-pin',
    ...(from === undefined ? {} : { from }),
  },
});
const unavailable: Decision = { refusal: { reason: 'home-unavailable', cause: 'unheard', cellId: 'c1' } };

const retryOf = (decision: Decision) => ('refusal' in decision ? decision.refusal.retryAfterMs : undefined);

describe('a host whose home does not answer its director (37)', () => {
  test('is sent there once: its home may have been lost by the directors alone (38)', () => {
    expect(homes.temper('h', kept('c1'))).toEqual(kept('c1'));
  });

  test('is told when the verdict is due if it is back within 30 s', () => {
    homes.temper('h', kept('c1'));
    clock.advance(10_000);
    judgedInMs = 30_000;
    expect(homes.temper('h', kept('c1'))).toEqual({
      refusal: { reason: 'home-silent', lane: 'placement', cause: 'unanswered', cellId: 'c1', retryAfterMs: 30_000 },
    });
  });

  test('is sent there again if it was away for longer: it had a socket meanwhile', () => {
    homes.temper('h', kept('c1'));
    clock.advance(30_001);
    expect(homes.temper('h', kept('c1'))).toEqual(kept('c1'));
  });

  test('is told when the verdict is due where it is refused anyway', () => {
    expect(retryOf(homes.temper('h', unavailable))).toBe(40_000);
  });

  test('many are told to come one after the other', () => {
    const waits = ['a', 'b', 'c'].map((host) => retryOf(homes.temper(host, unavailable)));
    expect(waits).toEqual([40_000, 40_000 + SLOT_MS, 40_000 + 2 * SLOT_MS]);
    clock.advance(60_000);
    judgedInMs = 1_000;
    expect(retryOf(homes.temper('d', unavailable))).toBe(1_000);
  });
});

describe('left as it is', () => {
  test('what is decided for a home that answers, however often', () => {
    for (let time = 0; time < 3; time++) expect(homes.temper('h', kept('c2'))).toEqual(kept('c2'));
  });

  test('a refusal once the verdict is there, or while it would be withheld', () => {
    judgedInMs = null;
    expect(homes.temper('h', unavailable)).toEqual(unavailable);
  });

  test('a move to another cell', () => {
    homes.temper('h', kept('c1'));
    expect(homes.temper('h', kept('c1', 'c3'))).toEqual(kept('c1', 'c3'));
  });

  test('a refusal for another reason', () => {
    const busy: Decision = { refusal: { reason: 'row-busy', retryAfterMs: 1_000 } };
    expect(homes.temper('h', busy)).toEqual(busy);
  });
});
