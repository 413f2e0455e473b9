import { describe, expect, it } from 'vitest';
import { DEFAULT_CELL_FLAGS, readCellFlags } from '../../contract/cell-flags.ts';

describe('the flags of a cell', () => {
  it('are by default those of a cell that runs on the database', () => {
    expect(readCellFlags({})).toEqual({ ok: true, flags: DEFAULT_CELL_FLAGS, ignored: [] });
    expect(DEFAULT_CELL_FLAGS).toEqual({
      readinessLocal: false,
      ticketCheck: 'off',
      rejectionFence: true,
      admitMode: 'db',
      reserveDryRun: false,
    });
  });

  it.each([0, 64, 2.0])('84: take %j trip slots', (deadManTripSlots) => {
    expect(readCellFlags({ admitMode: 'reserve', deadManTripSlots })).toMatchObject({
      ok: true,
      flags: { admitMode: 'reserve', deadManTripSlots },
    });
  });

  it.each([-1, 65, 1.5, '2', null, true])('84: are void as a whole with %j trip slots', (deadManTripSlots) => {
    expect(readCellFlags({ admitMode: 'reserve', deadManTripSlots })).toEqual({ ok: false, bad: ['deadManTripSlots'] });
  });

  it.each<[string, unknown, unknown]>([
    ['readinessLocal', true, 'true'],
    ['ticketCheck', 'shadow', 'on'],
    ['rejectionFence', false, 0],
    ['readTimeoutMarginMs', 60_000, 60_001],
    ['admitMode', 'reserve', 'Reserve'],
    ['intakePerSec', 0.5, 0],
    ['reserveDryRun', true, 1],
    ['reregisterInFlight', 16, 17],
    ['deadManTripSlots', 1, [1]],
  ])('have a schema of their own for %s', (name, good, bad) => {
    expect(readCellFlags({ [name]: good })).toMatchObject({ ok: true, flags: { [name]: good } });
    expect(readCellFlags({ [name]: bad })).toEqual({ ok: false, bad: [name] });
  });

  it('say which keys nobody knows, and go by the others', () => {
    expect(readCellFlags({ admitMode: 'reserve', warp: 9, toString: 1 })).toMatchObject({
      ok: true,
      flags: { admitMode: 'reserve' },
      ignored: ['warp', 'toString'],
    });
  });
});
