import { base64 } from '@scure/base';
import nacl from 'tweetnacl';
import { deriveRelayHostId } from '../contract/host-proof.ts';

/** An X25519 key pair; the host's id on the relay follows from its public half. Keep it: it is the host's identity. */
export interface HostKeys {
  publicKey: Uint8Array;
  secretKey: Uint8Array;
}

export function newHostKeys(): HostKeys {
  return nacl.box.keyPair();
}

/** @throws TypeError unless it is 32 bytes */
export function hostKeysFromSecret(secretKey: Uint8Array): HostKeys {
  if (secretKey.length !== nacl.box.secretKeyLength) throw new TypeError('a host key has 32 bytes');
  return nacl.box.keyPair.fromSecretKey(secretKey);
}

export interface HostNames {
  relayHostId: string;
  hostPublicKeyB64: string;
}

export function hostNames(keys: HostKeys): HostNames {
  return { relayHostId: deriveRelayHostId(keys.publicKey), hostPublicKeyB64: base64.encode(keys.publicKey) };
}
