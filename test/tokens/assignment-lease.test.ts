import { createHash } from 'node:crypto';
import { decodeJwt, decodeProtectedHeader, jwtVerify } from 'jose';
import { expect, test } from 'vitest';
import { inspectAssignmentLease, type LeaseClass, signAssignmentLease } from '../../server/tokens.ts';
import { HandClock } from '../support/hand-clock.ts';

const KEY = 'a signing key of thirty-two bytes or more';
const LEASE = {
  userId: 'user-1',
  relayHostId: 'abcdefghijklmnop',
  cellId: 'us-1',
  cellUrl: 'https://us-1.example.test',
  epoch: 7,
};
const clock = new HandClock();
const sign = (overrides: Partial<typeof LEASE> = {}, key = KEY) =>
  signAssignmentLease(key, 'https://director.example.test', { ...LEASE, ...overrides }, clock);

test('a lease carries what wire 1.9 says, for 5 min', async () => {
  const lease = await sign();
  const { payload } = await jwtVerify(lease, Buffer.from(KEY), { currentDate: new Date(clock.wallNow()) });
  expect(payload).toEqual({
    iss: 'https://director.example.test',
    aud: 'orca-relay-cell',
    sub: 'user-1',
    purpose: 'cell-assignment',
    cellId: 'us-1',
    cellUrl: 'https://us-1.example.test',
    assignmentEpoch: 7,
    relayHostId: 'abcdefghijklmnop',
    iat: expect.any(Number),
    exp: (payload.iat ?? 0) + 300,
  });
  const kid = `k1-${createHash('sha256').update(KEY).digest('hex').slice(0, 8)}`;
  expect(decodeProtectedHeader(lease)).toMatchObject({ alg: 'HS256', kid });
  expect(lease.length).toBeLessThan(4_096);
});

test.each<[LeaseClass, Partial<typeof LEASE>]>([
  ['valid', {}],
  ['wrong-host', { userId: 'user-2' }],
  ['wrong-host', { relayHostId: 'ponmlkjihgfedcba' }],
  ['wrong-cell', { cellId: 'us-2' }],
  ['epoch-behind', { epoch: 6 }],
  ['epoch-ahead', { epoch: 8 }],
])('%s', async (expected, signed) => {
  expect(await inspectAssignmentLease(KEY, await sign(signed), LEASE, clock)).toBe(expected);
});

test('absent, expired, and every way to be no lease of ours', async () => {
  expect(await inspectAssignmentLease(KEY, undefined, LEASE, clock)).toBe('absent');
  expect(await inspectAssignmentLease(KEY, '', LEASE, clock)).toBe('absent');
  const lease = await sign();
  const [head, body, signature] = lease.split('.') as [string, string, string];
  const tampered = `${head}.${Buffer.from(JSON.stringify({ ...decodeJwt(lease), assignmentEpoch: 9 })).toString('base64url')}.${signature}`;
  for (const bad of ['x', `${head}.${body}`, `${lease}x`, tampered, 'e'.repeat(4_097)]) {
    expect(await inspectAssignmentLease(KEY, bad, LEASE, clock)).toBe('bad-signature');
  }
  const other = await sign({}, 'another signing key of thirty-two bytes');
  expect(await inspectAssignmentLease(KEY, other, LEASE, clock)).toBe('bad-signature');
  clock.advance(300_001);
  expect(await inspectAssignmentLease(KEY, lease, LEASE, clock)).toBe('expired');
});
