import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  HOST_EVENTS,
  HOST_STATES,
  HOST_TABLE,
  type HostEvent,
  type HostState,
  KEEPS_GOING,
} from '../../client/host-machine.ts';

/** What the driver holds after the effects so far. */
interface World {
  state: HostState;
  attempt: 'assign' | 'open' | null;
  timer: boolean;
  control: boolean;
}

/** Events that can happen to a driver in this world. */
function possible(world: World): HostEvent[] {
  const events: HostEvent[] = ['start', 'stop'];
  if (world.timer) events.push('due');
  if (world.control) events.push('lost', 'drain');
  if (world.attempt === 'assign') events.push('assigned', 'assign-failed', 'assign-refused');
  if (world.attempt === 'open') events.push('opened', 'open-failed', 'resume-refused');
  return events;
}

function step(world: World, event: HostEvent): World {
  const next = { ...world };
  if (event === 'due') next.timer = false;
  if (event === 'lost') next.control = false;
  if (event.startsWith('assign') || event === 'open-failed' || event === 'resume-refused') next.attempt = null;
  const { to, effects } = HOST_TABLE[world.state][event];
  next.state = to;
  for (const effect of effects) {
    if (effect === 'assign') next.attempt = 'assign';
    if (effect === 'open' || effect === 'open-fresh' || effect === 'rebind') next.attempt = 'open';
    if (effect === 'abandon-attempt') next.attempt = null;
    if (effect === 'adopt') Object.assign(next, { control: true, attempt: null });
    if (effect.startsWith('arm-')) next.timer = true;
    if (effect === 'cancel-timer') next.timer = false;
    if (effect === 'retire-cell') next.control = false;
    if (effect === 'stop') Object.assign(next, { control: false, attempt: null, timer: false });
  }
  return next;
}

const IDLE: World = { state: 'idle', attempt: null, timer: false, control: false };

function walk(picks: number[], visit: (world: World) => void): void {
  let world = IDLE;
  for (const pick of picks) {
    const events = possible(world).filter((event) => event !== 'stop' || pick % 101 === 0);
    world = step(world, events[pick % events.length] ?? 'start');
    visit(world);
  }
}

describe('host machine', () => {
  test('H1: whatever happens, something always goes on by itself until it is told to stop or is refused', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(), { minLength: 1, maxLength: 200 }), (picks) =>
        walk(picks, (world) => {
          const going = KEEPS_GOING[world.state];
          if (going === 'attempt') expect(world.attempt, world.state).not.toBeNull();
          if (going === 'timer') expect(world.timer, world.state).toBe(true);
          if (going === 'control') expect(world.control && world.timer, world.state).toBe(true);
          if (going === 'nothing') expect(['idle', 'refused', 'stopped']).toContain(world.state);
        }),
      ),
      { numRuns: 500 },
    );
  });

  test('H2: an attempt and a back-off never run side by side', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(), { minLength: 1, maxLength: 200 }), (picks) =>
        walk(picks, (world) => {
          expect(world.attempt !== null && world.timer, JSON.stringify(world)).toBe(false);
        }),
      ),
      { numRuns: 500 },
    );
  });

  test('the active control is kept while the host looks for its next cell', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(), { minLength: 1, maxLength: 200 }), (picks) =>
        walk(picks, ({ state, control }) => {
          if (['online', 'renewing', 'moving', 'switching', 'moving-wait'].includes(state)) expect(control).toBe(true);
          else expect(control, state).toBe(false);
        }),
      ),
      { numRuns: 500 },
    );
  });

  test.each(HOST_STATES.filter((state) => state !== 'stopped'))('stop ends %s', (state) => {
    expect(HOST_TABLE[state].stop).toEqual({ to: 'stopped', effects: ['stop'] });
  });

  test('stopped is for good', () => {
    for (const event of HOST_EVENTS) expect(HOST_TABLE.stopped[event]).toEqual({ to: 'stopped', effects: [] });
  });

  test('a drain opens the target before the old cell goes (wire 3.1, 7)', () => {
    let world = IDLE;
    const seen = (['start', 'assigned', 'opened', 'drain', 'assigned', 'opened'] as const).map((event) => {
      world = step(world, event);
      return [world.state, world.control];
    });
    expect(seen).toEqual([
      ['assigning', false],
      ['opening', false],
      ['online', true],
      ['moving', true],
      ['switching', true],
      ['online', true],
    ]);
  });
});
