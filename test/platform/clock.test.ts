import { expect, test } from 'vitest';
import { every, guardedClock } from '../../server/clock.ts';
import { freshDatabase } from '../support/database.ts';
import { startDirector } from '../support/director.ts';
import { HandClock } from '../support/hand-clock.ts';

test('an exception in a timer is handed over, and ends nothing else', () => {
  const hand = new HandClock(1_000);
  const errors: unknown[] = [];
  const clock = guardedClock(hand, (error) => errors.push(error));
  let later = 0;
  clock.setTimeout(() => {
    throw new Error('of one peer');
  }, 10);
  clock.setTimeout(() => {
    later += 1;
  }, 20);
  clock.clearTimeout(
    clock.setTimeout(() => {
      later += 10;
    }, 20),
  );
  hand.advance(20);
  expect([later, clock.now(), clock.wallNow()]).toEqual([1, 20, 1_020]);
  expect(errors).toEqual([new Error('of one peer')]);
});

test('a tick that throws is followed by the next, until it is stopped', () => {
  const hand = new HandClock();
  const errors: unknown[] = [];
  const stop = every(
    guardedClock(hand, (error) => errors.push(error)),
    100,
    () => {
      throw new Error('again');
    },
  );
  hand.advance(350);
  expect(errors).toHaveLength(3);
  stop();
  expect(hand.armed).toBe(0);
});

test('a process counts it and goes on', async () => {
  const database = await freshDatabase();
  const hand = new HandClock();
  let broken = false;
  const now = () => {
    if (broken) throw new Error('no time');
    return hand.now();
  };
  const clock = {
    now,
    wallNow: () => hand.wallNow(),
    setTimeout: hand.setTimeout.bind(hand),
    clearTimeout: hand.clearTimeout.bind(hand),
  };
  const director = await startDirector(database, { clock });
  try {
    broken = true;
    hand.advance(250);
    broken = false;
    const metrics = await (await fetch(`${director.origin}/metrics`)).text();
    expect(metrics).toMatch(/^orca_relay_handlers_failed_total\{kind="timer"\} [1-9]/m);
  } finally {
    await director.stop();
    await database.drop();
  }
});
