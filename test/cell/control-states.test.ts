import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CLOSE_REASONS } from '../../contract/index.ts';
import {
  CONTROL_EVENTS,
  CONTROL_STATES,
  CONTROL_TRANSITIONS,
  type ControlEvent,
  type ControlState,
  END_CAUSES,
  END_REASONS,
} from '../../server/cell/control-states.ts';

function run(events: readonly ControlEvent[]): ControlState {
  let state: ControlState = 'proving';
  for (const event of events) state = CONTROL_TRANSITIONS[state][event] ?? state;
  return state;
}

describe('the life of a control (wire 2.3)', () => {
  it('is total: every state answers every event', () => {
    for (const state of CONTROL_STATES)
      expect(Object.keys(CONTROL_TRANSITIONS[state]).sort()).toEqual([...CONTROL_EVENTS].sort());
  });

  it('never leaves closed', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...CONTROL_EVENTS)), (events) => {
        expect(run([...events, 'ended', ...events])).toBe('closed');
      }),
    );
  });

  it('is proving only before its activation', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...CONTROL_EVENTS)), (events) => {
        expect(run(['activated', ...events])).not.toBe('proving');
      }),
    );
  });

  it.each<[string, ControlEvent[], ControlState]>([
    ['a lost socket orphans an active control', ['activated', 'socket-lost'], 'orphaned'],
    ['a rebind brings an orphan back', ['activated', 'socket-lost', 'rebound'], 'active'],
    [
      'a lost socket of a drained control leaves it drain-only',
      ['activated', 'drained', 'socket-lost-drained'],
      'drain-only',
    ],
    ['an expired token makes it drain-only', ['activated', 'token-expired'], 'drain-only'],
    ['a fresh token makes it active again', ['activated', 'token-expired', 'token-refreshed'], 'active'],
    [
      'an expired control that loses its socket is an orphan',
      ['activated', 'token-expired', 'socket-lost'],
      'orphaned',
    ],
    ['an unproved control that loses its socket is over', ['socket-lost'], 'closed'],
  ])('%s', (_name, events, state) => {
    expect(run(events)).toBe(state);
  });

  it('never tells a phone 4401 for what its host did: it would take its own credential for rejected', () => {
    for (const cause of END_CAUSES) {
      expect(CLOSE_REASONS[END_REASONS[cause].spliced]).not.toBe(4401);
      expect(CLOSE_REASONS[END_REASONS[cause].pending]).not.toBe(4401);
    }
  });
});
