import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, type JWK, type JWTPayload, SignJWT } from 'jose';

/** An account service as relays see it: a JWKS over HTTP and the tokens that its keys sign. */
export interface KeyServer {
  issuer: string;
  jwksUrl: string;
  /** Fetches so far. */
  fetches(): number;
  /** Answers each fetch by itself from now on; null: the key set again. */
  misbehave(answer: ((response: ServerResponse) => void) | null): void;
  /** Adds a key that signs from now on. */
  rotate(): Promise<void>;
  /** A relay token of wire 1.9; `overrides` of undefined leave a claim out. */
  relayToken(relayHostId: string, overrides?: Record<string, unknown>): Promise<string>;
  stop(): Promise<void>;
  /** Listens on the same port again. */
  restart(): Promise<void>;
}

export async function startKeyServer(): Promise<KeyServer> {
  const keys: JWK[] = [];
  let signing: { kid: string; key: Awaited<ReturnType<typeof generateKeyPair>>['privateKey'] };
  let fetches = 0;
  let own: ((response: ServerResponse) => void) | null = null;
  const server = createServer((_, response) => {
    fetches += 1;
    if (own) own(response);
    else response.setHeader('content-type', 'application/json').end(JSON.stringify({ keys }));
  });
  const listen = (port: number) => new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  await listen(0);
  const { port } = server.address() as AddressInfo;
  const issuer = 'https://login.example.test';

  const rotate = async () => {
    const kid = `key-${keys.length + 1}`;
    const pair = await generateKeyPair('ES256');
    keys.push({ ...(await exportJWK(pair.publicKey)), kid, alg: 'ES256', use: 'sig' });
    signing = { kid, key: pair.privateKey };
  };
  await rotate();

  return {
    issuer,
    jwksUrl: `http://127.0.0.1:${port}/jwks.json`,
    fetches: () => fetches,
    misbehave: (answer) => {
      own = answer;
    },
    rotate,
    relayToken: async (relayHostId, overrides = {}) => {
      const now = Math.floor(Date.now() / 1_000);
      const claims: JWTPayload = {
        iss: issuer,
        aud: 'orca-relay',
        sub: 'user-1',
        prof: 'profile-1',
        org: 'org-1',
        relayHostId,
        purpose: 'host-control',
        iat: now,
        exp: now + 300,
        ...overrides,
      };
      return new SignJWT(claims).setProtectedHeader({ alg: 'ES256', kid: signing.kid }).sign(signing.key);
    },
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
    restart: () => listen(port),
  };
}
