import { createPublicKey, diffieHellman, generateKeyPairSync, type KeyObject } from 'node:crypto';
import type { KeyAgreement } from '../../contract/index.ts';

/** A public key of low order: whatever it is agreed with, the secret is zero. Nobody can prove that they hold it. */
export class WeakKeyError extends Error {}

/** What stands before the 32 bytes of an X25519 public key in DER. */
const SPKI_HEAD = Buffer.from('302a300506032b656e032100', 'hex');

/** X25519 by OpenSSL: in JavaScript it is most of what seating a host costs, ×3. */
export const agreeNatively: KeyAgreement = (theirPublicKey) => {
  const { publicKey, privateKey } = generateKeyPairSync('x25519');
  const theirs = createPublicKey({ key: Buffer.concat([SPKI_HEAD, theirPublicKey]), format: 'der', type: 'spki' });
  const own = publicKey.export({ type: 'spki', format: 'der' }).subarray(SPKI_HEAD.length);
  return { publicKey: own, sharedSecret: agree(privateKey, theirs) };
};

function agree(privateKey: KeyObject, publicKey: KeyObject): Uint8Array {
  try {
    return diffieHellman({ privateKey, publicKey });
  } catch (error) {
    throw new WeakKeyError('the public key is of low order', { cause: error });
  }
}
