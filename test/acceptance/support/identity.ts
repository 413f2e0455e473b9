import { createHash, randomBytes, randomUUID } from 'node:crypto';
import nacl from 'tweetnacl';
import { hostIdOf } from './proof.ts';

/** A host as its owner knows it: account, profile and key pair; the relay host id follows from the key. */
export interface HostIdentity {
  userId: string;
  profileId: string;
  organizationId: string | null;
  publicKey: Uint8Array;
  secretKey: Uint8Array;
  relayHostId: string;
}

export function newIdentity(overrides: Partial<HostIdentity> = {}): HostIdentity {
  const pair = nacl.box.keyPair();
  return {
    userId: `user-${randomUUID()}`,
    profileId: `profile-${randomUUID()}`,
    organizationId: null,
    publicKey: pair.publicKey,
    secretKey: pair.secretKey,
    relayHostId: hostIdOf(pair.publicKey),
    ...overrides,
  };
}

/** A token of the wire's `token32` form. */
export function newToken(): string {
  return randomBytes(32).toString('base64url');
}

/** base64url(SHA-256(token text)), the only form in which a credential may be stored or sent through the host. */
export function hashOf(token: string): string {
  return createHash('sha256').update(token).digest('base64url');
}

export function newId(prefix: string): string {
  return `${prefix}-${randomUUID()}`;
}
