import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LIMITS } from '../../contract/index.ts';
import { type Unit, type UnitRefusal, Units } from '../../server/cell/units.ts';

function granted<T extends Unit>(unit: T | UnitRefusal): T {
  if (typeof unit === 'string') throw new Error(`refused: ${unit}`);
  return unit;
}

function fill(units: Units, count: number): Unit[] {
  return Array.from({ length: count }, () => granted(units.control(true)));
}

const counts = (units: Units) => [units.physical, units.inFlight, units.reserved, units.enforced];

describe('a capped cell (wire 2.2)', () => {
  it('moves a control from in flight to physical to nothing', () => {
    const units = new Units(600);
    const control = granted(units.control(false));
    expect(counts(units)).toEqual([0, 1, 0, 1]);
    control.opened();
    expect(counts(units)).toEqual([1, 0, 0, 1]);
    control.release();
    expect(counts(units)).toEqual([0, 0, 0, 0]);
  });

  it('keeps the last 100 units for controls that take the place of a live one', () => {
    const units = new Units(600);
    fill(units, 500);
    expect(units.control(false)).toBe('no-units');
    expect(units.phone()).toBe('no-units');
    expect(units.hostData('unknown')).toBe('no-units');
    fill(units, 100);
    expect(units.control(true)).toBe('no-units');
    expect(units.enforced).toBe(600);
  });

  it('wants two units for a phone: with one left it is refused, and a control is not', () => {
    const units = new Units(600);
    fill(units, 499);
    expect(units.phone()).toBe('no-units');
    granted(units.control(false));
  });

  it('keeps a unit for the data socket of the phone, full or not', () => {
    const units = new Units(600);
    const phone = granted(units.phone());
    phone.opened();
    expect(counts(units)).toEqual([1, 0, 1, 2]);
    fill(units, 498);
    expect(units.hostData('conn')).toBe('no-units');
    phone.bind('conn');
    const data = granted(units.hostData('conn'));
    expect(units.enforced).toBe(500);
    expect(units.reserved).toBe(0);
    expect(units.hostData('conn')).toBe('no-units');
    data.keep();
    data.release();
    phone.release();
    expect(units.enforced).toBe(498);
  });

  it('gives the unit back to the phone that waits when a data socket is refused', () => {
    const units = new Units(600);
    const phone = granted(units.phone());
    phone.bind('conn');
    const wrong = granted(units.hostData('conn'));
    wrong.opened();
    wrong.release();
    expect(units.reserved).toBe(1);
    const right = granted(units.hostData('conn'));
    expect(units.reserved).toBe(0);
    right.opened();
    right.keep();
    right.release();
    phone.release();
    expect(counts(units)).toEqual([0, 0, 0, 0]);
  });

  it('frees a lent unit with the data socket when the phone goes first', () => {
    const units = new Units(600);
    const phone = granted(units.phone());
    phone.bind('conn');
    const data = granted(units.hostData('conn'));
    phone.release();
    expect(units.enforced).toBe(1);
    data.release();
    expect(counts(units)).toEqual([0, 0, 0, 0]);
  });

  it('counts a second release as a fault and stays right', () => {
    const units = new Units(600);
    const other = granted(units.control(false));
    const control = granted(units.control(false));
    control.release();
    control.release();
    expect([units.enforced, units.faults]).toEqual([1, 1]);
    other.release();
    expect([units.enforced, units.faults]).toEqual([0, 1]);
  });
});

describe('an uncapped cell', () => {
  it('lets phones in up to 650, data sockets up to 800, controls up to 900', () => {
    const units = new Units(null);
    for (let i = 0; i < 650; i++) granted(units.phone());
    expect(units.phone()).toBe('too-many-sockets');
    for (let i = 0; i < 150; i++) granted(units.hostData(`c${i}`));
    expect(units.hostData('one more')).toBe('too-many-sockets');
    for (let i = 0; i < 100; i++) granted(units.control(false));
    expect(units.control(false)).toBe('too-many-sockets');
    expect(units.control(true)).toBe('too-many-sockets');
    expect(units.enforced).toBe(LIMITS.uncappedConnections);
  });
});

describe('any history', () => {
  type Step =
    | { do: 'control'; rebind: boolean }
    | { do: 'phone' }
    | { do: 'bind' | 'open' | 'keep' | 'release'; which: number }
    | { do: 'data'; which: number };

  const which = fc.nat({ max: 10_000 });
  const step: fc.Arbitrary<Step> = fc.oneof(
    { weight: 2, arbitrary: fc.record({ do: fc.constant('control' as const), rebind: fc.boolean() }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constant('phone' as const) }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constant('data' as const), which }) },
    { weight: 6, arbitrary: fc.record({ do: fc.constantFrom('bind', 'open', 'keep', 'release'), which }) },
  );

  it.each([130, null])('keeps its sums, respects its ceilings and ends at zero (hard cap %s)', (hardCap) => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 300 }), (steps) => {
        const units = new Units(hardCap);
        const live: { unit: Unit; bind?: (connId: string) => void; keep?: () => void; connId: string }[] = [];
        let names = 0;
        for (const one of steps) {
          const watermark = units.inclusionWatermark;
          const before = counts(units).join();
          apply(one);
          if (counts(units).join() !== before) expect(units.inclusionWatermark).toBeGreaterThan(watermark);
          expect(Math.min(units.physical, units.inFlight, units.reserved)).toBeGreaterThanOrEqual(0);
          expect(units.enforced).toBeLessThanOrEqual(hardCap ?? LIMITS.uncappedConnections);
          expect(units.physical + units.inFlight).toBe(live.length);
        }
        for (const { unit } of live) unit.release();
        expect(counts(units)).toEqual([0, 0, 0, 0]);
        expect(units.faults).toBe(0);

        function apply(one: Step): void {
          if (one.do === 'control') take(units.control(one.rebind), '');
          else if (one.do === 'phone') take(units.phone(), `c${names++}`);
          else if (live.length === 0) return;
          else if (one.do === 'data') take(units.hostData(live[one.which % live.length]!.connId), '');
          else {
            const at = one.which % live.length;
            const chosen = live[at]!;
            if (one.do === 'bind') chosen.bind?.(chosen.connId);
            else if (one.do === 'open') chosen.unit.opened();
            else if (one.do === 'keep') chosen.keep?.();
            else {
              live.splice(at, 1);
              chosen.unit.release();
            }
          }
        }

        function take(unit: Unit | UnitRefusal, connId: string): void {
          if (typeof unit !== 'string') live.push({ unit, connId, ...unit });
        }
      }),
      { numRuns: 300 },
    );
  });
});
