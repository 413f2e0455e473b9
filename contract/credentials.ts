import { sha256 } from '@noble/hashes/sha2.js';
import { randomBytes, utf8ToBytes } from '@noble/hashes/utils.js';
import { base64urlnopad } from '@scure/base';

/** A fresh secret in `token32` form: 32 random bytes. */
export function newToken(): string {
  return base64urlnopad.encode(randomBytes(32));
}

/** How every token is stored and compared: base64url(SHA-256(the token's text)), not of the bytes it encodes. */
export function hashToken(token: string): string {
  return base64urlnopad.encode(sha256(utf8ToBytes(token)));
}
