import fc from 'fast-check';
import { beforeEach, expect, test } from 'vitest';
import { PreAuth, type PreAuthRefusal, type PreAuthSlot } from '../../server/pre-auth.ts';
import { HandClock } from '../support/hand-clock.ts';

let clock: HandClock;
let refused: PreAuthRefusal[];
let budget: PreAuth;
beforeEach(() => {
  clock = new HandClock();
  refused = [];
  budget = new PreAuth(clock, (reason) => refused.push(reason));
});

test('a source holds 4, another source is not its business', () => {
  const slots = Array.from({ length: 4 }, () => budget.admit('a'));
  expect(slots).not.toContain(null);
  expect(budget.admit('a')).toBeNull();
  expect(budget.admit('b')).not.toBeNull();
  slots[0]?.release();
  slots[0]?.release();
  expect(budget.admit('a')).not.toBeNull();
  expect(budget.admit('a')).toBeNull();
  expect(refused).toEqual(['source', 'source']);
});

test('45 in all', () => {
  const slots = Array.from({ length: 45 }, (_, i) => budget.admit(`source ${i}`));
  expect(slots).not.toContain(null);
  expect(budget.admit('one more')).toBeNull();
  expect(refused).toEqual(['total']);
  slots[7]?.release();
  expect(budget.admit('one more')).not.toBeNull();
});

test('30 attempts a minute, refused ones too, in a fixed window', () => {
  for (let i = 0; i < 30; i += 1) budget.admit('a')?.release();
  expect(refused).toEqual([]);
  expect(budget.admit('a')).toBeNull();
  expect(refused).toEqual(['attempts']);
  clock.advance(59_999);
  expect(budget.admit('a')).toBeNull();
  clock.advance(1);
  expect(budget.admit('a')).not.toBeNull();
});

test('remembers 4 096 sources, and each that holds a slot', () => {
  budget.admit('holder');
  for (let i = 0; i < 5_000; i += 1) budget.admit(`source ${i}`)?.release();
  for (let i = 0; i < 3; i += 1) expect(budget.admit('holder')).not.toBeNull();
  expect(budget.admit('holder')).toBeNull();
});

test('whatever the order, nothing is over its limit and all comes back', () => {
  const step = fc.record({ source: fc.nat(15), leave: fc.nat(60), kind: fc.constantFrom('admit', 'leave', 'wait') });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const own = new PreAuth(clock);
      const held: { source: number; slot: PreAuthSlot }[] = [];
      for (const { source, leave, kind } of steps) {
        if (kind === 'wait') clock.advance(leave * 1_000);
        else if (kind === 'leave') held.splice(leave % (held.length || 1), 1)[0]?.slot.release();
        else {
          const slot = own.admit(String(source));
          if (slot) held.push({ source, slot });
        }
        expect(own.held).toBe(held.length);
        expect(held.length).toBeLessThanOrEqual(45);
        expect(held.filter((one) => one.source === source).length).toBeLessThanOrEqual(4);
      }
      for (const { slot } of held) slot.release();
      expect(own.held).toBe(0);
    }),
  );
});
