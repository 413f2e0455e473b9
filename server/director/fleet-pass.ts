import { createHmac } from 'node:crypto';
import { secretEquals } from '../tokens.ts';

/**
 * What a browser shows after its user gave the metrics key once: a cookie that scripts do not see and other sites cannot
 * send. It holds no key, only until when it counts and proof that a holder of the key got it.
 */

export const PASS_COOKIE = 'orca_relay_fleet';
export const PASS_MS = 12 * 3_600_000;
/** Beyond any cookie of ours. */
const MAX_COOKIE_HEADER = 8_192;

const proofOf = (metricsKey: string, until: number) =>
  createHmac('sha256', metricsKey).update(`orca-relay fleet page until ${until}`).digest('hex');

/** @param secure whether the page is reached over TLS */
export function passCookie(metricsKey: string, now: number, secure: boolean): string {
  const until = now + PASS_MS;
  const flags = `Path=/fleet; Max-Age=${PASS_MS / 1_000}; HttpOnly; SameSite=Strict${secure ? '; Secure' : ''}`;
  return `${PASS_COOKIE}=${until}.${proofOf(metricsKey, until)}; ${flags}`;
}

export function holdsPass(metricsKey: string, cookieHeader: string | undefined, now: number): boolean {
  if (cookieHeader === undefined || cookieHeader.length > MAX_COOKIE_HEADER) return false;
  const pass = new RegExp(`(?:^|; ?)${PASS_COOKIE}=(\\d{1,16})\\.([0-9a-f]{64})(?:;|$)`).exec(cookieHeader);
  if (pass === null) return false;
  const until = Number(pass[1]);
  return until > now && secretEquals(proofOf(metricsKey, until), pass[2] as string);
}
