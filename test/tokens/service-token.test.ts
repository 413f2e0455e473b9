import { createHmac } from 'node:crypto';
import { decodeJwt, SignJWT } from 'jose';
import { expect, test } from 'vitest';
import { cellAudience, signServiceToken, verifyServiceToken } from '../../server/service-token.ts';
import { createRelayTokenVerifier, inspectAssignmentLease, signAssignmentLease } from '../../server/tokens.ts';
import { HandClock } from '../support/hand-clock.ts';

const KEY = 'a signing key of thirty-two bytes or more';
const AUDIENCE = cellAudience('us-1');
const DIRECTOR = { caller: 'director-1', role: 'director' } as const;

const sign = (clock: HandClock, audience = AUDIENCE, key = KEY) =>
  signServiceToken(key, { ...DIRECTOR, audience }, clock);
const verify = (token: string, clock: HandClock, audience = AUDIENCE, key = KEY) =>
  verifyServiceToken(key, token, { audience }, clock);

test('a service token names caller, role and audience, for 15 min', async () => {
  const clock = new HandClock();
  const token = await sign(clock);
  const { iat = 0, ...rest } = decodeJwt(token);
  expect(rest).toEqual({
    iss: 'orca-relay-director',
    aud: 'orca-relay-cell:us-1',
    sub: 'director-1',
    role: 'director',
    exp: iat + 900,
  });
  expect(await verify(token, clock)).toEqual(DIRECTOR);
});

test('one cell cannot use it at another', async () => {
  const clock = new HandClock();
  const token = await sign(clock);
  expect(await verify(token, clock, cellAudience('us-2'))).toBeNull();
  expect(await verify(token, clock, cellAudience('us-1 '))).toBeNull();
});

test('clocks may be 60 s apart, either way', async () => {
  const clock = new HandClock(1_800_000_000_000);
  const token = await sign(clock);
  expect(await verify(token, new HandClock(1_800_000_000_000 + 959_000))).toEqual(DIRECTOR);
  expect(await verify(token, new HandClock(1_800_000_000_000 + 961_000))).toBeNull();
  expect(await verify(token, new HandClock(1_800_000_000_000 - 60_000))).toEqual(DIRECTOR);
  expect(await verify(token, new HandClock(1_800_000_000_000 - 61_000))).toBeNull();
});

test('no life longer than 15 min, whoever signs it', async () => {
  const clock = new HandClock();
  const key = derivedKey();
  const signed = (life: number) => craft(clock, key, { lifeSeconds: life });
  expect(await verify(await signed(900), clock)).toEqual(DIRECTOR);
  const long = await signed(86_400);
  clock.sleep(961_000);
  expect(await verify(long, clock)).toBeNull();
});

test('another key, another kind of token, and what is no token at all', async () => {
  const clock = new HandClock();
  const key = derivedKey();
  const token = await sign(clock);
  expect(await verify(token, clock, AUDIENCE, 'another signing key of thirty-two bytes')).toBeNull();
  const lease = await signAssignmentLease(
    KEY,
    'https://director.example.test',
    {
      userId: 'user-1',
      relayHostId: 'abcdefghijklmnop',
      cellId: 'us-1',
      cellUrl: 'https://us-1.example.test',
      epoch: 7,
    },
    clock,
  );
  const [head, body] = token.split('.');
  const bad = [
    lease,
    await craft(clock, Buffer.from(KEY), {}),
    await craft(clock, key, { role: 'cell' }),
    await craft(clock, key, { issuer: 'somebody' }),
    await craft(clock, key, { subject: '' }),
    '',
    'x',
    `${head}.${body}`,
    `${token}x`,
    'e'.repeat(4_097),
  ];
  for (const each of bad) expect(await verify(each, clock)).toBeNull();
});

test('it opens no other door', async () => {
  const clock = new HandClock();
  const token = await sign(clock);
  const seat = { userId: 'user-1', relayHostId: 'abcdefghijklmnop', cellId: 'us-1', epoch: 7 };
  expect(await inspectAssignmentLease(KEY, token, seat, clock)).toBe('bad-signature');
  const hosts = createRelayTokenVerifier({ auth: null, selfHostedKey: 'k'.repeat(32), signingKey: KEY }, clock);
  expect(await hosts.verify(token)).toBeNull();
});

interface Crafted {
  role?: string;
  issuer?: string;
  subject?: string;
  lifeSeconds?: number;
}

function craft(clock: HandClock, key: Uint8Array, crafted: Crafted): Promise<string> {
  const now = Math.floor(clock.wallNow() / 1_000);
  return new SignJWT({ role: crafted.role ?? 'director' })
    .setProtectedHeader({ alg: 'HS256' })
    .setIssuer(crafted.issuer ?? 'orca-relay-director')
    .setAudience(AUDIENCE)
    .setSubject(crafted.subject ?? 'director-1')
    .setIssuedAt(now)
    .setExpirationTime(now + (crafted.lifeSeconds ?? 900))
    .sign(key);
}

/** The key of service tokens, made anew: what a holder of the signing key could sign with. */
function derivedKey(): Uint8Array {
  return createHmac('sha256', KEY).update('orca-relay-service-token-v1').digest();
}
