import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { cellFrames, hostFrames, readCapabilities } from '../../contract/control.ts';
import { hostDataFrames, phoneFrames, relayFrames } from '../../contract/phone.ts';
import { isOrigin, key32, nonce24 } from '../../contract/scalars.ts';
import { SPLICE_STATES, SPLICE_TRANSITIONS } from '../../contract/splice-states.ts';

const token = 'A'.repeat(43);

describe('reading', () => {
  test.each([
    ['not JSON', '{', 'invalid_json'],
    ['an array', '[]', 'invalid_json'],
    ['null', 'null', 'invalid_json'],
    ['no type', '{"t":1}', 'unknown_type'],
    ['a type of Object.prototype', '{"type":"constructor"}', 'unknown_type'],
    ['an unknown type', '{"type":"host-drain"}', 'unknown_type'],
    ['a missing field', '{"type":"pong"}', 'invalid_fields'],
    ['a surplus field', '{"type":"pong","t":1,"u":2}', 'invalid_fields'],
    ['a fraction', '{"type":"pong","t":1.5}', 'invalid_fields'],
    ['an integer that JavaScript cannot keep', '{"type":"pong","t":9007199254740992}', 'invalid_fields'],
    ['a negative time', '{"type":"pong","t":-1}', 'invalid_fields'],
  ])('%s', (_, text, error) => {
    expect(hostFrames.read(text)).toEqual({ ok: false, error });
  });

  test('a refusal names the request when it can be read', () => {
    expect(hostFrames.read('{"type":"device-revoke","reqId":"r1"}')).toEqual({
      ok: false,
      error: 'invalid_fields',
      reqId: 'r1',
    });
    expect(hostFrames.read('{"type":"nope","reqId":"r1"}')).toEqual({ ok: false, error: 'unknown_type', reqId: 'r1' });
    expect(hostFrames.read(JSON.stringify({ type: 'nope', reqId: 'r'.repeat(129) }))).not.toHaveProperty('reqId');
  });

  test('never throws, whatever arrives', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.json()), (text) => {
        for (const codec of [hostFrames, cellFrames, phoneFrames, hostDataFrames, relayFrames]) codec.read(text);
      }),
    );
  });

  test('an install must say how it is authorised, and only that', () => {
    const install = {
      type: 'device-credential-install',
      v: 1,
      reqId: 'r',
      relayDeviceId: 'd',
      newResumeTokenHash: token,
      authorization: { mode: 'relay-basis', basisConnId: 'c' },
    };
    expect(hostFrames.read(JSON.stringify(install)).ok).toBe(true);
    const mixed = { ...install, authorization: { mode: 'relay-basis', basisConnId: 'c', directAuthId: 'x' } };
    expect(hostFrames.read(JSON.stringify(mixed)).ok).toBe(false);
  });
});

describe('writing', () => {
  test('round trip', () => {
    const text = cellFrames.write('drain', { graceMs: 0, recovery: 'resolve-director' });
    expect(text).toBe('{"type":"drain","graceMs":0,"recovery":"resolve-director"}');
    expect(cellFrames.read(text)).toEqual({
      ok: true,
      frame: { type: 'drain', graceMs: 0, recovery: 'resolve-director' },
    });
  });

  test('a field outside the contract is a thrown mistake', () => {
    const fields = { t: 1, extra: true } as unknown as { t: number };
    expect(() => cellFrames.write('ping', fields)).toThrow();
  });

  test('a hello that succeeds carries no code, and one that fails nothing else', () => {
    expect(relayFrames.write('relay-hello', { ok: false, code: 4404 })).toBe(
      '{"type":"relay-hello","ok":false,"code":4404}',
    );
    const mixed = { ok: true, credentialKind: 'invite', leaseExpiresAt: 1, code: 4404 };
    expect(() => relayFrames.write('relay-hello', mixed as never)).toThrow();
  });
});

describe('scalars', () => {
  test.each([
    ['https://relay.example', true],
    ['https://relay.example:8443', true],
    ['http://127.0.0.1:8080', true],
    ['http://localhost:8080', true],
    ['http://[::1]:8080', true],
    ['http://relay.example', false],
    ['https://relay.example/', false],
    ['https://relay.example:443', false],
    ['wss://relay.example', false],
    ['relay.example', false],
  ])('origin %s: %s', (text, expected) => {
    expect(isOrigin(text)).toBe(expected);
  });

  test('keys are canonical standard base64 of the exact length', () => {
    expect(key32.safeParse(`${'A'.repeat(43)}=`).success).toBe(true);
    expect(key32.safeParse(`${'A'.repeat(42)}B=`).success).toBe(false);
    expect(key32.safeParse('A'.repeat(44)).success).toBe(false);
    expect(nonce24.safeParse('A'.repeat(32)).success).toBe(true);
    expect(nonce24.safeParse(`${'A'.repeat(31)}_`).success).toBe(false);
  });
});

test('capabilities: known tokens only, trimmed, bounded', () => {
  expect(readCapabilities(' x , pending-conn-details')).toEqual(new Set(['pending-conn-details']));
  expect(readCapabilities(`${'x,'.repeat(16)}pending-conn-details`)).toEqual(new Set());
  expect(readCapabilities('')).toEqual(new Set());
});

test('a phone connection only goes forward, and can always end', () => {
  for (const [index, state] of SPLICE_STATES.entries()) {
    for (const [event, next] of Object.entries(SPLICE_TRANSITIONS[state])) {
      if (event === 'end') expect(next).toBe('teardown');
      else if (next) expect(SPLICE_STATES.indexOf(next)).toBe(index + 1);
    }
  }
});
