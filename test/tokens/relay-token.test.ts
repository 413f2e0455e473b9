import { SignJWT, UnsecuredJWT } from 'jose';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { bearerToken, createRelayTokenVerifier, KeysUnavailableError, signHostToken } from '../../server/tokens.ts';
import { HandClock } from '../support/hand-clock.ts';
import { type KeyServer, startKeyServer } from '../support/key-server.ts';

const HOST = 'abcdefghijklmnop';
const SIGNING_KEY = 'a signing key of thirty-two bytes or more';

let keys: KeyServer;
let clock: HandClock;
beforeEach(async () => {
  keys = await startKeyServer();
  clock = new HandClock();
});
afterEach(async () => {
  vi.useRealTimers();
  await keys.stop();
});

const verifier = (options: { selfHosted?: boolean; issued?: boolean } = {}) =>
  createRelayTokenVerifier(
    {
      auth: options.issued === false ? null : { issuer: keys.issuer, jwksUrl: keys.jwksUrl, audience: 'orca-relay' },
      selfHostedKey: options.selfHosted ? 'a-self-hosting-key-of-32-letters' : null,
      signingKey: SIGNING_KEY,
    },
    clock,
  );

describe('a relay token by JWKS (wire 1.9)', () => {
  test('says who the host is', async () => {
    expect(await verifier().verify(await keys.relayToken(HOST))).toEqual({
      userId: 'user-1',
      profileId: 'profile-1',
      organizationId: 'org-1',
      relayHostId: HOST,
      expiresAt: expect.any(Number),
    });
  });

  test('needs no organization', async () => {
    const identity = await verifier().verify(await keys.relayToken(HOST, { org: undefined }));
    expect(identity?.organizationId).toBeNull();
  });

  test.each([
    ['another audience', { aud: 'orca-cloud' }],
    ['another issuer', { iss: 'https://elsewhere.example.test' }],
    ['another purpose', { purpose: 'desktop' }],
    ['no purpose', { purpose: undefined }],
    ['no subject', { sub: undefined }],
    ['no profile', { prof: undefined }],
    ['a malformed host id', { relayHostId: 'short' }],
    ['no expiry', { exp: undefined }],
    ['an expiry that has passed', { exp: Math.floor(Date.now() / 1_000) - 1 }],
    ['a start that has not come', { nbf: Math.floor(Date.now() / 1_000) + 60 }],
    ['a user id that is no text', { sub: 7 as unknown as string }],
  ])('with %s is refused', async (_, overrides) => {
    expect(await verifier().verify(await keys.relayToken(HOST, overrides))).toBeNull();
  });

  test('that is no token at all is refused without asking anybody', async () => {
    const forged = new UnsecuredJWT({ sub: 'user-1', relayHostId: HOST }).encode();
    for (const text of ['', 'x', 'a.b.c', forged, 'e'.repeat(8_193), '{}']) {
      expect(await verifier().verify(text)).toBeNull();
    }
    expect(keys.fetches()).toBe(0);
  });

  test('signed with a shared secret is refused, whatever key it names', async () => {
    const token = await new SignJWT({ prof: 'p', relayHostId: HOST, purpose: 'host-control' })
      .setProtectedHeader({ alg: 'HS256', kid: 'key-1' })
      .setIssuer(keys.issuer)
      .setAudience('orca-relay')
      .setSubject('user-1')
      .setExpirationTime('5m')
      .sign(Buffer.from(SIGNING_KEY));
    expect(await verifier().verify(token)).toBeNull();
    expect(await verifier({ selfHosted: true }).verify(token)).toBeNull();
  });
});

describe('the key server', () => {
  test('is asked once for many tokens', async () => {
    const tokens = verifier();
    const token = await keys.relayToken(HOST);
    await Promise.all(Array.from({ length: 20 }, () => tokens.verify(token)));
    expect(keys.fetches()).toBe(1);
  });

  test('may go away once its keys are known, for days', async () => {
    const tokens = verifier();
    await tokens.verify(await keys.relayToken(HOST));
    await keys.stop();
    for (let hour = 0; hour < 48; hour += 1) {
      clock.advance(3_600_000);
      const exp = Math.floor(clock.wallNow() / 1_000) + 300;
      expect(await tokens.verify(await keys.relayToken(HOST, { exp }))).not.toBeNull();
    }
    expect(tokens.keysLoaded()).toBe(true);
    await keys.restart();
  });

  test('that is away at first makes a token unknown, not invalid; and is asked again when it is back', async () => {
    const tokens = verifier();
    const token = await keys.relayToken(HOST);
    await keys.stop();
    await expect(tokens.verify(token)).rejects.toThrow(KeysUnavailableError);
    expect(tokens.keysLoaded()).toBe(false);
    await keys.restart();
    clock.advance(1_000);
    expect(await tokens.verify(token)).not.toBeNull();
  });

  test('is not flooded while it fails', async () => {
    const tokens = verifier();
    const token = await keys.relayToken(HOST);
    keys.misbehave((response) => response.writeHead(500).end());
    for (let i = 0; i < 10; i += 1) await expect(tokens.verify(token)).rejects.toThrow('jwks_http_failed');
    expect(keys.fetches()).toBe(1);
    clock.advance(1_000);
    await expect(tokens.verify(token)).rejects.toThrow('jwks_http_failed');
    expect(keys.fetches()).toBe(2);
  });

  test('is asked for a key that nobody has seen yet: a rotation', async () => {
    const tokens = verifier();
    await tokens.verify(await keys.relayToken(HOST));
    await keys.rotate();
    expect(await tokens.verify(await keys.relayToken(HOST))).toBeNull();
    expect(keys.fetches()).toBe(1);
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 5_001 });
    expect(await tokens.verify(await keys.relayToken(HOST))).not.toBeNull();
  });

  test.each<[string, (response: import('node:http').ServerResponse) => void, string]>([
    ['an error page', (response) => response.writeHead(503).end('down'), 'jwks_http_failed'],
    ['a redirect', (response) => response.writeHead(302, { location: '/elsewhere' }).end(), 'jwks_http_failed'],
    ['something that is no JSON', (response) => response.end('<html>'), 'jwks_http_failed'],
    ['something that is no key set', (response) => response.end('{"keys":7}'), 'jwks_http_failed'],
    ['far too much', (response) => response.end(Buffer.alloc(300_000, 32)), 'jwks_http_failed'],
    ['a cut connection', (response) => response.destroy(), 'jwks_fetch_failed'],
  ])('that answers %s is reported so', async (_, answer, reason) => {
    const tokens = verifier();
    expect(await tokens.ready()).toEqual({ ok: true });
    keys.misbehave(answer);
    clock.advance(1_000);
    expect(await tokens.ready()).toEqual({ ok: false, reason });
    expect(await tokens.verify(await keys.relayToken(HOST))).not.toBeNull();
  });

  test('that never answers is given up after 2 s', async () => {
    const tokens = verifier();
    keys.misbehave(() => undefined);
    const startedAt = performance.now();
    expect(await tokens.ready()).toEqual({ ok: false, reason: 'jwks_timed_out' });
    expect(performance.now() - startedAt).toBeLessThan(10_000);
  });
});

describe('a self-hosted token', () => {
  test('is what /v1/host-token signs, for 15 min', async () => {
    const { relayToken, expiresAt } = await signHostToken(
      SIGNING_KEY,
      { profileId: 'https://relay.example.test', relayHostId: HOST },
      clock,
    );
    const tokens = verifier({ selfHosted: true, issued: false });
    expect(await tokens.verify(relayToken)).toEqual({
      userId: 'self-hosted',
      profileId: 'https://relay.example.test',
      organizationId: null,
      relayHostId: HOST,
      expiresAt,
    });
    expect(Math.abs(expiresAt - clock.wallNow() - 900_000)).toBeLessThan(1_001);
    expect(tokens.keysLoaded()).toBe(true);
    expect(await tokens.ready()).toEqual({ ok: true });
    clock.advance(901_000);
    expect(await tokens.verify(relayToken)).toBeNull();
  });

  test('is refused where self-hosting is off, and under another signing key', async () => {
    const host = { profileId: 'https://relay.example.test', relayHostId: HOST };
    const { relayToken } = await signHostToken(SIGNING_KEY, host, clock);
    expect(await verifier().verify(relayToken)).toBeNull();
    const other = await signHostToken('another signing key of thirty-two bytes', host, clock);
    expect(await verifier({ selfHosted: true }).verify(other.relayToken)).toBeNull();
  });
});

test('only one form of Authorization header carries a token', () => {
  expect(bearerToken('Bearer abc')).toBe('abc');
  for (const header of [undefined, '', 'abc', 'bearer abc', 'Bearer  abc', 'Bearer a b', 'Bearer ', 'Basic abc']) {
    expect(bearerToken(header)).toBeNull();
  }
});
