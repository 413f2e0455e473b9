import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type HelloGround, type HelloView, helloGround } from '../../server/cell/hello-ground.ts';

const STRANGER: HelloView = {
  mode: 'reserve',
  epoch: 7,
  booked: false,
  outranked: false,
  seat: undefined,
  leaver: undefined,
  ticket: false,
  shedding: false,
};
const SEATED = { seat: { epoch: 7, drained: false } };

describe('88: what lets a host in on a reserve cell', () => {
  it.each<[string, Partial<HelloView>, HelloGround]>([
    ['a stranger: the database', {}, 'database'],
    ['a stranger while the pool sheds', { shedding: true }, 'shed'],
    ['booked', { booked: true, shedding: true }, 'booking'],
    ['a booking before a seat', { booked: true, ...SEATED }, 'booking'],
    ['seated here', { ...SEATED, shedding: true }, 'seat'],
    ['seated at another epoch', { seat: { epoch: 6, drained: false } }, 'database'],
    ['told to leave, or demoted', { seat: { epoch: 7, drained: true }, shedding: true }, 'shed'],
    [
      'a seat says more than a leave',
      { seat: { epoch: 6, drained: false }, leaver: { epoch: 7, closeCode: 1006 } },
      'database',
    ],
    ['left with a lost socket', { leaver: { epoch: 7, closeCode: 1006 }, shedding: true }, 'seat'],
    ['left by its own will', { leaver: { epoch: 7, closeCode: 1000 } }, 'seat'],
    ['left, at another epoch', { leaver: { epoch: 8, closeCode: 1006 } }, 'database'],
    ['drained away', { leaver: { epoch: 7, closeCode: 4503 } }, 'database'],
    ['sent to another cell', { leaver: { epoch: 7, closeCode: 4409 } }, 'database'],
    ['a lease, where leases admit', { ticket: true, shedding: true }, 'ticket'],
    ['outranked, whatever else speaks for it', { outranked: true, booked: true, ticket: true, ...SEATED }, 'database'],
    ['in db mode, whatever else', { mode: 'db', booked: true, ticket: true, shedding: true, ...SEATED }, 'database'],
  ])('%s', (_name, over, expected) => {
    expect(helloGround({ ...STRANGER, ...over })).toBe(expected);
  });

  it('an outranked host, and any host in db mode, is never let in from memory', () => {
    const seat = fc.option(fc.record({ epoch: fc.integer({ min: 6, max: 8 }), drained: fc.boolean() }), {
      nil: undefined,
    });
    const leaver = fc.option(
      fc.record({ epoch: fc.integer({ min: 6, max: 8 }), closeCode: fc.constantFrom(1000, 1006, 4408, 4409, 4503) }),
      { nil: undefined },
    );
    const view = fc.record({
      mode: fc.constantFrom('db' as const, 'reserve' as const),
      epoch: fc.constant(7),
      booked: fc.boolean(),
      outranked: fc.boolean(),
      seat,
      leaver,
      ticket: fc.boolean(),
      shedding: fc.boolean(),
    });
    fc.assert(
      fc.property(view, (seen) => {
        const fromMemory = !['database', 'shed'].includes(helloGround(seen));
        if (seen.outranked || seen.mode === 'db') expect(fromMemory).toBe(false);
        if (helloGround(seen) === 'shed') expect(seen).toMatchObject({ mode: 'reserve', shedding: true });
      }),
    );
  });
});
