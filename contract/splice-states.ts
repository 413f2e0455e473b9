/**
 * One phone connection, from the upgrade to its end. Forward only; `end` leads to `teardown` from everywhere.
 *
 *   pre-auth-admitted ─ credential-opened → credential-lease-reserved ─ host-told → host-notified
 *   ─ attach-awaited → attach-pending ─ host-data-accepted → host-attached ─ phone-acknowledged → client-acknowledged
 *   ─ forwarding → spliced ─ basis-held → e2ee-confirmable
 *
 * `null` marks an event that cannot happen in a state: a caller that meets it has a mistake, and must stop the pair.
 */
export const SPLICE_STATES = [
  'pre-auth-admitted',
  'credential-lease-reserved',
  'host-notified',
  'attach-pending',
  'host-attached',
  'client-acknowledged',
  'spliced',
  'e2ee-confirmable',
  'teardown',
] as const;
export type SpliceState = (typeof SPLICE_STATES)[number];

export type SpliceEvent =
  | 'credential-opened'
  | 'host-told'
  | 'attach-awaited'
  | 'host-data-accepted'
  | 'phone-acknowledged'
  | 'forwarding'
  | 'basis-held'
  | 'end';

type Row = Record<SpliceEvent, SpliceState | null>;

const nothing: Row = {
  'credential-opened': null,
  'host-told': null,
  'attach-awaited': null,
  'host-data-accepted': null,
  'phone-acknowledged': null,
  forwarding: null,
  'basis-held': null,
  end: 'teardown',
};

export const SPLICE_TRANSITIONS: Record<SpliceState, Row> = {
  'pre-auth-admitted': { ...nothing, 'credential-opened': 'credential-lease-reserved' },
  'credential-lease-reserved': { ...nothing, 'host-told': 'host-notified' },
  'host-notified': { ...nothing, 'attach-awaited': 'attach-pending' },
  'attach-pending': { ...nothing, 'host-data-accepted': 'host-attached' },
  'host-attached': { ...nothing, 'phone-acknowledged': 'client-acknowledged' },
  'client-acknowledged': { ...nothing, forwarding: 'spliced' },
  spliced: { ...nothing, 'basis-held': 'e2ee-confirmable' },
  'e2ee-confirmable': nothing,
  teardown: nothing,
};
