import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import { decodeProtectedHeader, errors, type JWTVerifyOptions, jwtVerify, SignJWT } from 'jose';
import { assignmentLeaseClaims, relayTokenClaims } from '../contract/http.ts';
import { LIMITS } from '../contract/limits.ts';
import { type Clock, systemClock } from './clock.ts';
import { createKeySet, type KeySet, type KeySetFailure } from './key-set.ts';

export { type KeySetFailure, KeysUnavailableError } from './key-set.ts';

/** The tokens of wire 1.9: what a host shows to a director and to a cell, and what a director hands to a host. */

const RELAY_AUDIENCE = 'orca-relay';
const LEASE_AUDIENCE = 'orca-relay-cell';
const SELF_HOSTED_LABEL = 'orca-self-hosted-relay-host-control-v1';
const SELF_HOSTED_USER = 'self-hosted';
const MAX_TOKEN_LENGTH = 8_192;

/** Who a relay token says is asking. */
export interface HostIdentity {
  userId: string;
  profileId: string;
  organizationId: string | null;
  relayHostId: string;
  /** Epoch milliseconds, of the issuer's clock. */
  expiresAt: number;
}

export interface RelayTokenConfig {
  auth: { issuer: string; jwksUrl: string; audience: string } | null;
  selfHostedKey: string | null;
  signingKey: string;
}

export type KeysReadiness = { ok: true } | { ok: false; reason: KeySetFailure };

export interface RelayTokenVerifier {
  /**
   * Null for any token that is not a valid relay token of today.
   * @throws {KeysUnavailableError} when the key server is away and the token's key was never seen: not the token's fault
   */
  verify(token: string): Promise<HostIdentity | null>;
  /** Asks the key server (2 s at most). Always ok without one. */
  ready(): Promise<KeysReadiness>;
  /** True when tokens can be verified without asking anybody. */
  keysLoaded(): boolean;
}

/** One way a relay token may be signed. The header's algorithm chooses, and only among those that are configured. */
type Verification = (token: string) => Promise<Record<string, unknown>>;

export function createRelayTokenVerifier(config: RelayTokenConfig, clock: Clock = systemClock): RelayTokenVerifier {
  const keySet = config.auth ? createKeySet(config.auth.jwksUrl, clock) : null;
  const byAlgorithm = new Map<string, Verification>();
  if (config.auth && keySet) byAlgorithm.set('ES256', verifyIssued(config.auth, keySet, clock));
  // The issuer is not compared: a self-hosted token comes from a director whose origin a cell does not know.
  if (config.selfHostedKey) byAlgorithm.set('HS256', verifySelfHosted(config.signingKey, clock));

  return {
    async verify(token) {
      if (token.length === 0 || token.length > MAX_TOKEN_LENGTH) return null;
      const verification = byAlgorithm.get(algorithmOf(token) ?? '');
      if (!verification) return null;
      try {
        return readIdentity(await verification(token));
      } catch (error) {
        if (isTokenError(error)) return null;
        throw error;
      }
    },
    async ready() {
      const reason = await keySet?.probe();
      return reason ? { ok: false, reason } : { ok: true };
    },
    keysLoaded: () => keySet?.loaded() ?? true,
  };
}

function verifyIssued(auth: NonNullable<RelayTokenConfig['auth']>, keySet: KeySet, clock: Clock): Verification {
  return async (token) => {
    const options = { algorithms: ['ES256'], issuer: auth.issuer, audience: auth.audience, ...atNow(clock) };
    return (await jwtVerify(token, keySet.keyFor, options)).payload;
  };
}

function verifySelfHosted(signingKey: string, clock: Clock): Verification {
  const key = selfHostedSigningKey(signingKey);
  return async (token) => {
    const options = {
      algorithms: ['HS256'],
      audience: RELAY_AUDIENCE,
      subject: SELF_HOSTED_USER,
      ...atNow(clock),
    };
    return (await jwtVerify(token, key, options)).payload;
  };
}

/**
 * A relay token for a self-hosted desktop, 15 min.
 * @param profileId the director's public origin
 */
export async function signHostToken(
  signingKey: string,
  host: { profileId: string; relayHostId: string },
  clock: Clock = systemClock,
): Promise<{ relayToken: string; expiresAt: number }> {
  const issuedAt = seconds(clock.wallNow());
  const expiresAt = issuedAt + LIMITS.selfHostedTokenTtlMs / 1_000;
  const relayToken = await new SignJWT({
    prof: host.profileId,
    relayHostId: host.relayHostId,
    purpose: 'host-control',
  })
    .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
    .setIssuer(host.profileId)
    .setAudience(RELAY_AUDIENCE)
    .setSubject(SELF_HOSTED_USER)
    .setIssuedAt(issuedAt)
    .setExpirationTime(expiresAt)
    .sign(selfHostedSigningKey(signingKey));
  return { relayToken, expiresAt: expiresAt * 1_000 };
}

const BEARER = /^Bearer ([^\s]+)$/;

/** What an `Authorization` header carries, if it has the one form we take. */
export function bearerToken(authorization: string | undefined): string | null {
  return BEARER.exec(authorization ?? '')?.[1] ?? null;
}

/** Compares in constant time, whatever the lengths. */
export function secretEquals(expected: string, given: string): boolean {
  return timingSafeEqual(digest(expected), digest(given));
}

/** What a director grants: this host on this cell at this epoch. Admission never hangs on it (wire 1.9). */
export interface AssignmentLease {
  userId: string;
  relayHostId: string;
  cellId: string;
  cellUrl: string;
  epoch: number;
}

/** Signs a grant for 5 min. */
export async function signAssignmentLease(
  signingKey: string,
  issuer: string,
  lease: AssignmentLease,
  clock: Clock = systemClock,
): Promise<string> {
  const issuedAt = seconds(clock.wallNow());
  return new SignJWT({
    purpose: 'cell-assignment',
    cellId: lease.cellId,
    cellUrl: lease.cellUrl,
    assignmentEpoch: lease.epoch,
    relayHostId: lease.relayHostId,
  })
    .setProtectedHeader({ alg: 'HS256', typ: 'JWT', kid: signingKeyId(signingKey) })
    .setIssuer(issuer)
    .setAudience(LEASE_AUDIENCE)
    .setSubject(lease.userId)
    .setIssuedAt(issuedAt)
    .setExpirationTime(issuedAt + LIMITS.assignmentLeaseTtlMs / 1_000)
    .sign(Buffer.from(signingKey));
}

/** What a cell finds when it looks at the lease a host echoes. */
export type LeaseClass =
  | 'valid'
  | 'absent'
  | 'expired'
  | 'bad-signature'
  | 'wrong-host'
  | 'wrong-cell'
  | 'epoch-behind'
  | 'epoch-ahead';

/** @param expected the host that shows the lease, the cell that looks, and the epoch the host is seated at there */
export async function inspectAssignmentLease(
  signingKey: string,
  lease: string | undefined,
  expected: Omit<AssignmentLease, 'cellUrl'>,
  clock: Clock = systemClock,
): Promise<LeaseClass> {
  if (!lease) return 'absent';
  if (lease.length > LIMITS.maxAssignmentLeaseLength) return 'bad-signature';
  try {
    const options = { algorithms: ['HS256'], audience: LEASE_AUDIENCE, ...atNow(clock) };
    const claims = assignmentLeaseClaims.parse((await jwtVerify(lease, Buffer.from(signingKey), options)).payload);
    if (claims.sub !== expected.userId || claims.relayHostId !== expected.relayHostId) return 'wrong-host';
    if (claims.cellId !== expected.cellId) return 'wrong-cell';
    if (claims.assignmentEpoch < expected.epoch) return 'epoch-behind';
    return claims.assignmentEpoch > expected.epoch ? 'epoch-ahead' : 'valid';
  } catch (error) {
    return error instanceof errors.JWTExpired ? 'expired' : 'bad-signature';
  }
}

/** Names the signing key in a lease's header without telling it. */
export function signingKeyId(signingKey: string): string {
  return `k1-${digest(signingKey).toString('hex').slice(0, 8)}`;
}

function selfHostedSigningKey(signingKey: string): Buffer {
  return createHmac('sha256', signingKey).update(SELF_HOSTED_LABEL).digest();
}

function readIdentity(payload: Record<string, unknown>): HostIdentity | null {
  const claims = relayTokenClaims.safeParse(payload);
  if (!claims.success) return null;
  return {
    userId: claims.data.sub,
    profileId: claims.data.prof,
    organizationId: claims.data.org ?? null,
    relayHostId: claims.data.relayHostId,
    expiresAt: Math.floor(claims.data.exp * 1_000),
  };
}

function algorithmOf(token: string): string | undefined {
  try {
    return decodeProtectedHeader(token).alg;
  } catch {
    return undefined;
  }
}

/** A bad token in any of the ways a token can be bad; a failure to reach the key server is not among them. */
function isTokenError(error: unknown): boolean {
  return error instanceof errors.JOSEError;
}

/** How jose is told the time, and that a token without an end or a subject is none. */
export function atNow(clock: Clock): Pick<JWTVerifyOptions, 'currentDate' | 'requiredClaims'> {
  return { currentDate: new Date(clock.wallNow()), requiredClaims: ['exp', 'sub'] };
}

/** Whole seconds since the epoch, as JWTs tell time. */
export function seconds(epochMs: number): number {
  return Math.floor(epochMs / 1_000);
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
