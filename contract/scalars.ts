import { base64 } from '@scure/base';
import { z } from 'zod';
import { LIMITS } from './limits.ts';

/** 32 bytes as base64url without padding: invite and resume tokens, tickets, resume secrets, all hashes. */
export const token32 = z.string().regex(/^[A-Za-z0-9_-]{43}$/);
/** 32 bytes as canonical standard base64: public keys and the proof. */
export const key32 = z.string().refine((text) => text.length === 44 && isCanonicalBase64(text, 32));
/** 24 bytes as canonical standard base64. */
export const nonce24 = z.string().refine((text) => text.length === 32 && isCanonicalBase64(text, 24));
/** First 16 characters of base64url(SHA-256(host public key)). */
export const relayHostId = z.string().regex(/^[A-Za-z0-9_-]{16}$/);
/** connId, challengeId, reqId, relayDeviceId, cellId, directAuthId. */
export const opaqueId = z.string().min(1).max(128);
export const appVersion = z.string().min(1).max(128);
export const relayJwt = z.string().min(1).max(8_192);
export const ciphertext = z.string().min(1).max(16_384).refine(isBase64);
/** Epochs, generations and epoch milliseconds: integers that JavaScript keeps exactly. */
export const safeInteger = z.int().min(0);
export const epochMs = safeInteger;
export const epoch = safeInteger;
export const generation = safeInteger;
export const duration = z.int().min(1).max(LIMITS.maxDurationMs);
/** A region's name: whatever the cells say they are in. */
export const region = z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/);

const LOOPBACK_HOSTS = new Set(['127.0.0.1', 'localhost', '[::1]']);

/** A canonical origin: https, or http on loopback, which only desktops and development use. */
export const origin = z.string().max(512).refine(isOrigin);

export function isOrigin(text: string): boolean {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    return false;
  }
  if (url.origin !== text) return false;
  return url.protocol === 'https:' || (url.protocol === 'http:' && LOOPBACK_HOSTS.has(url.hostname));
}

function isBase64(text: string): boolean {
  try {
    base64.decode(text);
    return true;
  } catch {
    return false;
  }
}

function isCanonicalBase64(text: string, bytes: number): boolean {
  try {
    const decoded = base64.decode(text);
    return decoded.length === bytes && base64.encode(decoded) === text;
  } catch {
    return false;
  }
}
