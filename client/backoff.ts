import type { Random } from './clock.ts';
import { CLIENT_LIMITS } from './limits.ts';

/** Back-off with full jitter: a random time up to base × 2^streak, between a floor and a cap, all in milliseconds. */
export interface Backoff {
  readonly baseMs: number;
  readonly capMs: number;
  readonly floorMs: number;
}

export const HOST_BACKOFF: Backoff = { baseMs: 1_000, capMs: 300_000, floorMs: 0 };
export const PHONE_BACKOFF: Backoff = { baseMs: 500, capMs: 30_000, floorMs: 250 };

/** Beyond this the power of two only loses precision; every cap is reached long before. */
const MAX_EXPONENT = 30;

/** @param retryAfterMs what the server asked for; it raises the delay, up to five minutes */
export function backoffDelay(backoff: Backoff, streak: number, random: Random, retryAfterMs = 0): number {
  const ceiling = Math.min(backoff.capMs, backoff.baseMs * 2 ** Math.min(streak, MAX_EXPONENT));
  const asked = Math.min(Math.max(retryAfterMs, 0), CLIENT_LIMITS.maxRetryAfterMs);
  return Math.max(backoff.floorMs, asked, Math.floor(random() * ceiling));
}

export function between(minMs: number, maxMs: number, random: Random): number {
  return minMs + Math.floor(random() * (maxMs - minMs));
}

/**
 * When to renew something that ends in `remainingMs`: early by a tenth, ± 10 % so that hosts of one cell spread out, and
 * never within the last 90 s.
 */
export function renewalDelay(remainingMs: number, random: Random): number {
  const latest = remainingMs - CLIENT_LIMITS.renewBeforeMs;
  return Math.max(CLIENT_LIMITS.renewRetryMinMs, Math.min(latest, (latest / 1.1) * (0.9 + random() * 0.2)));
}

/** A rejected credential is tried again, ever more rarely: its rejection may have been the relay's mistake. */
export function rejectedProbeDelay(streak: number, random: Random): number {
  const { rejectedProbeMinMs, rejectedProbeMaxMs } = CLIENT_LIMITS;
  const base = Math.min(rejectedProbeMaxMs, rejectedProbeMinMs * 2 ** Math.min(streak, MAX_EXPONENT));
  return base * (0.75 + random() * 0.5);
}

/** Milliseconds of a Retry-After header, in seconds or as a date; undefined when there is none to be understood. */
export function readRetryAfter(header: string | null | undefined, now: number): number | undefined {
  if (!header) return undefined;
  let delay = Number.NaN;
  if (/^\d{1,9}$/.test(header.trim())) delay = Number(header) * 1_000;
  // Date.parse takes nearly anything for a date, a negative number too.
  else if (/^[A-Z]/i.test(header)) delay = Date.parse(header) - now;
  return Number.isFinite(delay) ? Math.min(Math.max(delay, 0), CLIENT_LIMITS.maxRetryAfterMs) : undefined;
}
