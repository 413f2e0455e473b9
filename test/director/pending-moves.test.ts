import { beforeEach, describe, expect, test } from 'vitest';
import { LIMITS } from '../../contract/limits.ts';
import { moveIn, PendingMoves } from '../../server/director/pending-moves.ts';
import type { HostName, SeatEntry } from '../../server/director/seat-view.ts';
import type { Change } from '../../server/sql-interface.ts';
import { HandClock } from '../support/hand-clock.ts';

const h1: HostName = { userId: 'user-1', relayHostId: 'AAAAAAAAAAAAAAAA' };
const namesake: HostName = { ...h1, userId: 'user-2' };
const USED_AT_LAST_MS = LIMITS.bookingTtlMs + LIMITS.feedPollMs + LIMITS.feedTimeoutMs;

const seated = (...seats: [cellId: string, epoch: number][]) => ({
  seats: (): SeatEntry[] =>
    seats.map(([cellId, epoch]) => ({
      cellId,
      epoch,
      incarnation: 'one',
      generation: 1,
      state: 'active',
      joinedAt: 0,
    })),
});

let clock: HandClock;
let pending: PendingMoves;

beforeEach(() => {
  clock = new HandClock();
  pending = new PendingMoves(clock);
});

describe('F9: a move just committed', () => {
  test('O17 is known at once, with its age, and to its own host alone', () => {
    pending.note(h1, { cellId: 'Y', epoch: 6 }, 'own');
    clock.advance(40);
    expect(pending.of(h1)).toEqual({ cellId: 'Y', epoch: 6, source: 'own', ageMs: 40 });
    expect(pending.of(namesake)).toBeNull();
  });

  test('is superseded by a higher epoch, and not by a lower one', () => {
    pending.note(h1, { cellId: 'Y', epoch: 6 }, 'own');
    pending.note(h1, { cellId: 'X', epoch: 5 }, 'change');
    expect(pending.of(h1)).toMatchObject({ cellId: 'Y', epoch: 6 });
    pending.note(h1, { cellId: 'Z', epoch: 7 }, 'change');
    expect(pending.of(h1)).toMatchObject({ cellId: 'Z', epoch: 7 });
  });

  test('at one epoch what the row says stands over a booking, whichever was first (P2)', () => {
    pending.note(h1, { cellId: 'Y', epoch: 6 }, 'own');
    pending.note(h1, { cellId: 'Z', epoch: 6 }, 'change');
    pending.note(h1, { cellId: 'Y', epoch: 6 }, 'own');
    expect(pending.of(h1)).toMatchObject({ cellId: 'Z', source: 'change' });
  });

  test('said again it does not live longer', () => {
    pending.note(h1, { cellId: 'Y', epoch: 6 }, 'change');
    clock.advance(20_000);
    pending.note(h1, { cellId: 'Y', epoch: 6 }, 'change');
    clock.advance(USED_AT_LAST_MS - 20_000);
    expect(pending.of(h1)).toBeNull();
  });

  test('is superseded by a complete read of its cell that shows it', () => {
    pending.note(h1, { cellId: 'Y', epoch: 6 }, 'own');
    pending.settle('X', seated(['X', 5]));
    pending.settle('Y', seated(['X', 5], ['Y', 5]));
    expect(pending.of(h1)).toMatchObject({ cellId: 'Y' });
    pending.settle('Y', seated(['Y', 6]));
    expect(pending.of(h1)).toBeNull();
    expect(pending.size).toBe(0);
  });

  test('is superseded by a newer seat elsewhere', () => {
    pending.note(h1, { cellId: 'Y', epoch: 6 }, 'own');
    pending.settle('Y', seated(['Z', 7]));
    expect(pending.of(h1)).toBeNull();
  });

  test('is dropped after its time when no read shows it', () => {
    pending.note(h1, { cellId: 'Y', epoch: 6 }, 'own');
    clock.advance(USED_AT_LAST_MS - 1);
    pending.settle('Y', seated());
    expect(pending.of(h1)).not.toBeNull();
    clock.advance(1);
    expect(pending.of(h1)).toBeNull();
  });

  test('takes up bounded memory: the oldest is forgotten, the expired ones go first', () => {
    const host = (i: number): HostName => ({ userId: `user-${i}`, relayHostId: h1.relayHostId });
    for (let i = 0; i <= LIMITS.rememberedHosts; i++) pending.note(host(i), { cellId: 'Y', epoch: 1 }, 'own');
    expect(pending.size).toBe(LIMITS.rememberedHosts);
    expect(pending.of(host(0))).toBeNull();
    expect(pending.of(host(1))).not.toBeNull();
    clock.advance(USED_AT_LAST_MS);
    pending.note(h1, { cellId: 'Y', epoch: 1 }, 'own');
    expect(pending.size).toBe(1);
  });
});

describe('moves in the change log (O18)', () => {
  const change: Change = {
    id: 1,
    kind: 'moved',
    from_cell: 'X',
    to_cell: 'Y',
    user_id: h1.userId,
    relay_host_id: h1.relayHostId,
    epoch: 6,
    rule: 'fenced',
    detail: null,
    at: 0,
  };

  test.each(['placed', 'moved', 'recorded'] as const)('%s is one', (kind) => {
    expect(moveIn({ ...change, kind })).toEqual({ host: h1, move: { cellId: 'Y', epoch: 6 } });
  });

  test.each(['granted', 'lease_ended', 'migration', 'mode', 'incarnation'] as const)('%s is none', (kind) => {
    expect(moveIn({ ...change, kind })).toBeNull();
  });
});
