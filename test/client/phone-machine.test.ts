import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  endEvent,
  KEEPS_GOING,
  PHONE_EVENTS,
  PHONE_STATES,
  PHONE_TABLE,
  type PhoneEvent,
  type PhoneState,
} from '../../client/phone-machine.ts';

interface World {
  state: PhoneState;
  attempt: 'resolve' | 'dial' | null;
  timer: boolean;
  connection: boolean;
}

const DIAL_ENDS: PhoneEvent[] = ['all-rejected', 'rejected', 'host-offline', 'moved', 'dropped', 'dial-failed'];

function possible(world: World): PhoneEvent[] {
  const events: PhoneEvent[] = ['start'];
  if (world.timer) events.push('due');
  if (world.attempt === 'resolve') {
    events.push('resolved', 'resolve-unanswered', 'resolve-busy', 'rejected', 'all-rejected');
  }
  if (world.attempt === 'dial') events.push('hello', ...DIAL_ENDS);
  if (world.connection) events.push(...DIAL_ENDS);
  if (world.state === 'confirming') events.push('confirmed', 'confirm-failed');
  return events;
}

function step(world: World, event: PhoneEvent): World {
  const next = { ...world };
  if (event === 'due') next.timer = false;
  else if (event === 'hello') Object.assign(next, { connection: true, attempt: null });
  else if (event !== 'start' && event !== 'confirmed') Object.assign(next, { connection: false, attempt: null });
  const { to, effects } = PHONE_TABLE[world.state][event];
  next.state = to;
  for (const effect of effects) {
    if (effect === 'resolve' || effect === 'dial') next.attempt = effect;
    if (effect.startsWith('arm-')) next.timer = true;
    if (effect === 'cancel-timer') next.timer = false;
  }
  return next;
}

function walk(picks: number[], visit: (world: World, event: PhoneEvent) => void): void {
  let world: World = { state: 'idle', attempt: null, timer: false, connection: false };
  for (const pick of picks) {
    const events = possible(world);
    const event = events[pick % events.length] ?? 'start';
    world = step(world, event);
    visit(world, event);
  }
}

describe('phone machine', () => {
  test('T1: whatever happens, there is an attempt, a timer or a connection (incident 14)', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(), { minLength: 1, maxLength: 200 }), (picks) =>
        walk(picks, (world) => {
          const going = KEEPS_GOING[world.state];
          if (going === 'attempt') expect(world.attempt !== null || world.connection, world.state).toBe(true);
          if (going === 'timer') expect(world.timer, world.state).toBe(true);
          if (going === 'connection') expect(world.connection, world.state).toBe(true);
          if (going === 'nothing') expect(world.state).toBe('idle');
          expect(world.timer && (world.attempt !== null || world.connection)).toBe(false);
        }),
      ),
      { numRuns: 500 },
    );
  });

  test('T2: with two tokens, a wait comes within five attempts that brought no connection', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(), { minLength: 1, maxLength: 300 }), (picks) => {
        let attempts = 0;
        let rejections = 0;
        let world: World = { state: 'idle', attempt: null, timer: false, connection: false };
        for (const pick of picks) {
          // What the driver does: a second rejection in a row, with two tokens, is `all-rejected`.
          const events = possible(world).filter((event) =>
            event !== 'start' || world.state === 'idle' ? !(event === 'rejected' && rejections >= 1) : false,
          );
          const event = events[pick % events.length] ?? 'start';
          if (event === 'rejected') rejections += 1;
          world = step(world, event);
          if (world.attempt) attempts += 1;
          if (world.timer || world.connection) attempts = 0;
          if (world.state === 'rejected' || world.state === 'connected') rejections = 0;
          expect(attempts).toBeLessThanOrEqual(5);
        }
      }),
      { numRuns: 500 },
    );
  });

  test.each(PHONE_STATES.filter((state) => state !== 'stopped'))('stop ends %s', (state) => {
    expect(PHONE_TABLE[state].stop).toEqual({ to: 'stopped', effects: ['stop'] });
  });

  test('stopped is for good', () => {
    for (const event of PHONE_EVENTS) expect(PHONE_TABLE.stopped[event]).toEqual({ to: 'stopped', effects: [] });
  });

  test.each([
    [4401, true, 'rejected'],
    [4404, true, 'host-offline'],
    [4408, true, 'dropped'],
    [4409, true, 'moved'],
    [4429, true, 'dropped'],
    [4503, true, 'moved'],
    [1006, true, 'dropped'],
    [1009, true, 'dropped'],
    [1006, false, 'dial-failed'],
  ] as const)('code %i (answered: %j) reads as %s (wire 3.2)', (code, answered, event) => {
    expect(endEvent(code, answered)).toBe(event);
  });

  test('incident 17: a stale cell leads to the director at once, and to the new cell after it', () => {
    let world = step({ state: 'idle', attempt: null, timer: false, connection: false }, 'start');
    const seen = (['moved', 'resolved', 'hello'] as const).map((event) => {
      world = step(world, event);
      return world.state;
    });
    expect(seen).toEqual(['resolving', 'redialling', 'confirming']);
  });
});
