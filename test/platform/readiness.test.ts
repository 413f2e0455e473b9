import { beforeEach, describe, expect, test } from 'vitest';
import { createLogger } from '../../server/log.ts';
import { createReadiness, type ReadyVerdict } from '../../server/readiness.ts';
import type { DependencyState } from '../../server/role-part.ts';
import { HandClock } from '../support/hand-clock.ts';

const GRACE = { jwks: 900_000, sql: 180_000 };
const bad: DependencyState = { ok: false, reason: 'unavailable' };
const good: DependencyState = { ok: true };

let clock: HandClock;
let events: string[];
let asked: number;
let world: { accepting: boolean; sql: DependencyState; jwks: DependencyState };
let ready: () => Promise<ReadyVerdict>;

function make(graceMs = GRACE): void {
  const destination = { write: (line: string) => void events.push(JSON.parse(line).event) };
  ready = createReadiness({
    check: async () => {
      asked += 1;
      return { accepting: world.accepting, dependencies: { sql: world.sql, jwks: world.jwks } };
    },
    graceMs,
    clock,
    log: createLogger({ role: 'test', destination }),
  });
}

beforeEach(() => {
  clock = new HandClock();
  events = [];
  asked = 0;
  world = { accepting: true, sql: good, jwks: good };
  make();
});

/** Past the cache, so that the next question is asked anew. */
async function later(ms = 10_000): Promise<ReadyVerdict> {
  clock.advance(ms);
  return ready();
}

const ok = { ready: true, degraded: [] };
const lost = { ready: false, reason: 'dependency_unavailable' };

test('a verdict is kept for 10 s, and many ask one check', async () => {
  expect(await Promise.all([ready(), ready(), ready()])).toEqual([ok, ok, ok]);
  world.sql = bad;
  expect(await later(9_999)).toEqual(ok);
  expect(asked).toBe(1);
  await later(1);
  expect(asked).toBe(2);
});

describe('a dependency that fails', () => {
  test('leaves the process ready, degraded, for its own grace since the last success', async () => {
    await ready();
    world.sql = bad;
    expect(await later()).toEqual({ ready: true, degraded: ['sql'] });
    expect(await later(169_999)).toEqual({ ready: true, degraded: ['sql'] });
    expect(await later(10_000)).toEqual(lost);
    world.jwks = bad;
    world.sql = good;
    expect(await later()).toEqual({ ready: true, degraded: ['jwks'] });
    expect(events.filter((event) => event.includes('grace'))).toEqual([
      'orca_relay_readiness_grace_entered',
      'orca_relay_readiness_grace_left',
      'orca_relay_readiness_grace_entered',
    ]);
  });

  test('gets no grace before its first success, nor with a grace of 0', async () => {
    world.jwks = bad;
    expect(await ready()).toEqual(lost);
    make({ jwks: 0, sql: 0 });
    world.jwks = good;
    expect(await ready()).toEqual(ok);
    world.jwks = bad;
    expect(await later()).toEqual(lost);
  });
});

test('a part that takes no traffic is not ready, whatever its dependencies say', async () => {
  world.accepting = false;
  expect(await ready()).toEqual({ ready: false, reason: 'not_accepting' });
  world.accepting = true;
  expect(await later(1_000)).toEqual(ok);
});
