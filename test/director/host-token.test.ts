import { base64 } from '@scure/base';
import nacl from 'tweetnacl';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { deriveRelayHostId } from '../../contract/host-proof.ts';
import { hostTokenReply } from '../../contract/http.ts';
import type { RunningProcess } from '../../server/run.ts';
import { createRelayTokenVerifier } from '../../server/tokens.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { knownCell, post, SIGNING_KEY, startDirector } from '../support/director.ts';

const KEY = 'a-self-hosting-key-of-32-letters';
const { publicKey } = nacl.box.keyPair();
const host = { relayHostId: deriveRelayHostId(publicKey), hostPublicKeyB64: base64.encode(publicKey) };

let database: FreshDatabase;
let director: RunningProcess;
beforeAll(async () => {
  database = await freshDatabase();
  // a cell that beats once lives on, however long the tests take
  await database.setClock(Date.now());
  await knownCell(database, 'us-1');
  director = await startDirector(database, { env: { ORCA_RELAY_SELF_HOSTED_KEY: KEY } });
});
afterAll(async () => {
  await director?.stop();
  await database?.drop();
});

const ask = (body: unknown = host, token: string | undefined = KEY) =>
  post(`${director.origin}/v1/host-token`, body, token === '' ? {} : { token });

describe('POST /v1/host-token', () => {
  test('signs a token that assign takes; nobody keeps the reply', async () => {
    const { status, body, headers } = await ask();
    expect(status).toBe(200);
    expect(hostTokenReply.parse(body)).toEqual(body);
    expect(headers.get('cache-control')).toBe('no-store');
    const tokens = createRelayTokenVerifier({ auth: null, selfHostedKey: KEY, signingKey: SIGNING_KEY });
    expect(await tokens.verify(body.relayToken)).toEqual({
      userId: 'self-hosted',
      profileId: director.origin,
      organizationId: null,
      relayHostId: host.relayHostId,
      expiresAt: body.expiresAt,
    });
    const granted = await post(
      `${director.origin}/v1/assign`,
      { v: 1, relayHostId: host.relayHostId },
      { token: body.relayToken },
    );
    expect(granted).toMatchObject({ status: 200, body: { cellUrl: 'https://us-1.example.test' } });
  });

  test('a missing or wrong key: 401', async () => {
    for (const key of ['', 'x', `${KEY}x`, KEY.slice(1), KEY.toUpperCase()]) {
      expect(await ask(host, key)).toMatchObject({ status: 401, body: { error: 'invalid_token' } });
    }
  });

  test.each<[string, unknown]>([
    ['nothing', ''],
    ['no key', { relayHostId: host.relayHostId }],
    ['an unknown key', { ...host, v: 1 }],
    ['a public key in base64url', { ...host, hostPublicKeyB64: base64.encode(publicKey).replace(/=$/, '') }],
    ['a public key of 31 bytes', { ...host, hostPublicKeyB64: base64.encode(publicKey.subarray(1)) }],
    ['a host id that is no text', { ...host, relayHostId: 7 }],
  ])('%s: 400', async (_, body) => {
    expect(await ask(body)).toMatchObject({ status: 400, body: { error: 'invalid_request' } });
  });

  test('a host id of another key: 403', async () => {
    const other = { ...host, relayHostId: deriveRelayHostId(nacl.box.keyPair().publicKey) };
    expect(await ask(other)).toMatchObject({ status: 403, body: { error: 'host_identity_mismatch' } });
  });

  test('404 where self-hosting is not configured, whatever is asked', async () => {
    const plain = await startDirector(database);
    try {
      for (const body of [host, '']) {
        expect(await post(`${plain.origin}/v1/host-token`, body, { token: KEY })).toMatchObject({
          status: 404,
          body: { error: 'not_found' },
        });
      }
    } finally {
      await plain.stop();
    }
  });
});
