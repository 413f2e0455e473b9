import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, type JWTPayload, SignJWT } from 'jose';
import type { HostIdentity } from './identity.ts';

export const AUDIENCE = 'orca-relay';

export interface TokenOptions {
  /** Life of the token from now, in seconds; negative for one that has expired. */
  lifeSeconds?: number;
  /** Absolute expiry in epoch seconds; wins over `lifeSeconds`. */
  expiresAt?: number;
  audience?: string;
  issuer?: string;
  claims?: JWTPayload;
  without?: string[];
  /** Sign with a key that the key set does not hold. */
  foreignKey?: boolean;
}

/** An account server as a relay sees it: a key set over HTTP, and whoever holds its private key makes tokens. */
export interface Issuer {
  issuer: string;
  jwksUrl: string;
  token(identity: HostIdentity, options?: TokenOptions): Promise<string>;
  /** `down`: answers 503; `silent`: accepts and never answers. */
  setMode(mode: 'up' | 'down' | 'silent'): void;
  requests(): number;
  stop(): Promise<void>;
}

const KEY_ID = 'issuer-key-1';

export async function startIssuer(initialMode: 'up' | 'down' | 'silent' = 'up'): Promise<Issuer> {
  const known = await generateKeyPair('ES256', { extractable: true });
  const foreign = await generateKeyPair('ES256', { extractable: true });
  const jwk = { ...(await exportJWK(known.publicKey)), kid: KEY_ID, alg: 'ES256', use: 'sig' };
  let mode = initialMode;
  let count = 0;
  const server = createServer((_request, response) => {
    count += 1;
    if (mode === 'silent') return;
    if (mode === 'down') {
      response.writeHead(503).end();
      return;
    }
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ keys: [jwk] }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  const token = (identity: HostIdentity, options: TokenOptions = {}): Promise<string> => {
    const expiresAt = options.expiresAt ?? Math.floor(Date.now() / 1000) + (options.lifeSeconds ?? 300);
    const claims: JWTPayload = {
      sub: identity.userId,
      prof: identity.profileId,
      ...(identity.organizationId === null ? {} : { org: identity.organizationId }),
      relayHostId: identity.relayHostId,
      purpose: 'host-control',
      iss: options.issuer ?? origin,
      aud: options.audience ?? AUDIENCE,
      exp: expiresAt,
      ...options.claims,
    };
    for (const name of options.without ?? []) delete claims[name];
    const key = options.foreignKey === true ? foreign.privateKey : known.privateKey;
    return new SignJWT(claims).setProtectedHeader({ alg: 'ES256', kid: KEY_ID }).sign(key);
  };

  return {
    issuer: origin,
    jwksUrl: `${origin}/jwks.json`,
    token,
    setMode(next) {
      mode = next;
    },
    requests: () => count,
    stop: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}
