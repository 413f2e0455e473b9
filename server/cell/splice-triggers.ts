import type { CloseReason } from '../../contract/index.ts';

/** Which end of a splice: `client` is the phone. */
export type SpliceSide = 'client' | 'host';

/** Why a splice ended: the closed set behind logs and the `trigger` label (wire 2.6). */
export const SPLICE_TRIGGERS = [
  'client-closed',
  'host-closed',
  'client-error',
  'host-error',
  'client-oversize-frame',
  'host-oversize-frame',
  'peer-gone',
  'queue-limit',
  'wedged',
  'external',
] as const;
export type SpliceTrigger = (typeof SPLICE_TRIGGERS)[number];

/** An everyday end is counted; the rest is worth a log line. */
export const ABNORMAL: Record<SpliceTrigger, boolean> = {
  'client-closed': false,
  'host-closed': false,
  'client-error': true,
  'host-error': true,
  'client-oversize-frame': true,
  'host-oversize-frame': true,
  'peer-gone': true,
  'queue-limit': true,
  wedged: true,
  external: false,
};

/** What both peers, or the one that is left, read in their close frame. The caller of an external end brings its own. */
export const REASONS: Record<Exclude<SpliceTrigger, 'external'>, CloseReason> = {
  'client-closed': 'peer connection dropped',
  'host-closed': 'peer connection dropped',
  'client-error': 'peer connection dropped',
  'host-error': 'peer connection dropped',
  'client-oversize-frame': 'peer connection dropped',
  'host-oversize-frame': 'peer connection dropped',
  'peer-gone': 'peer connection dropped',
  'queue-limit': 'relay queue limit exceeded',
  wedged: 'wedged relay link',
};

const ABNORMAL_CLOSURE = 1006;
/** uWebSockets.js says this where the protocol has code 1009. */
const OVERSIZE = 'Received too big message';

/**
 * A peer's end as its close handler tells it: 1006 with a text is uWebSockets.js's own verdict on what the peer did. It has none
 * for a broken frame header, which looks like a lost connection.
 */
export function closeTrigger(side: SpliceSide, code: number, reason: string): SpliceTrigger {
  if (code !== ABNORMAL_CLOSURE || reason === '') return `${side}-closed`;
  return reason === OVERSIZE ? `${side}-oversize-frame` : `${side}-error`;
}
