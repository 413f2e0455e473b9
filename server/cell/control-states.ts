import type { CloseReason } from '../../contract/index.ts';

/**
 * The life of a host control.
 *
 *   proving ─ activated → active ─ socket-lost → orphaned ─ rebound → active
 *   active ─ token-expired | drained → drain-only ─ token-refreshed → active (never once drained)
 *   anything ─ ended → closed
 *
 * A drained control that loses its socket stays drain-only for the grace; one whose token had merely expired is orphaned
 * like any other. `null` marks an event that means nothing in a state: it is dropped, and the state stays.
 */
export const CONTROL_STATES = ['proving', 'active', 'orphaned', 'drain-only', 'closed'] as const;
export type ControlState = (typeof CONTROL_STATES)[number];

export const CONTROL_EVENTS = [
  'activated',
  'rebound',
  'socket-lost',
  'socket-lost-drained',
  'token-expired',
  'token-refreshed',
  'drained',
  'ended',
] as const;
export type ControlEvent = (typeof CONTROL_EVENTS)[number];

export const CONTROL_TRANSITIONS: Record<ControlState, Record<ControlEvent, ControlState | null>> = {
  proving: {
    activated: 'active',
    rebound: null,
    'socket-lost': 'closed',
    'socket-lost-drained': 'closed',
    'token-expired': null,
    'token-refreshed': null,
    drained: 'closed',
    ended: 'closed',
  },
  active: {
    activated: null,
    rebound: 'active',
    'socket-lost': 'orphaned',
    'socket-lost-drained': null,
    'token-expired': 'drain-only',
    'token-refreshed': 'active',
    drained: 'drain-only',
    ended: 'closed',
  },
  orphaned: {
    activated: null,
    rebound: 'active',
    'socket-lost': null,
    'socket-lost-drained': null,
    'token-expired': null,
    'token-refreshed': null,
    drained: 'drain-only',
    ended: 'closed',
  },
  'drain-only': {
    activated: null,
    rebound: 'active',
    'socket-lost': 'orphaned',
    'socket-lost-drained': 'drain-only',
    'token-expired': 'drain-only',
    'token-refreshed': 'active',
    drained: 'drain-only',
    ended: 'closed',
  },
  closed: {
    activated: null,
    rebound: null,
    'socket-lost': null,
    'socket-lost-drained': null,
    'token-expired': null,
    'token-refreshed': null,
    drained: null,
    ended: null,
  },
};

/** Why a control came to its end: a metric label. */
export const END_CAUSES = [
  'new-generation',
  'orphan-expired',
  'signed-out',
  'identity-changed',
  'auth-expired',
  'lease-expired',
  'drained',
  'retired',
  'moved',
  'assignment-missing',
  'activity-moved',
  'demoted',
  'stale-incarnation',
  'not-reregistered',
] as const;
export type EndCause = (typeof END_CAUSES)[number];

export interface EndReasons {
  /** On the control socket, if it is still open; null where the host has closed it. */
  control: CloseReason | null;
  /** On both sockets of each splice. Never 4401: a phone would take its own credential for rejected. */
  spliced: CloseReason;
  /** On phones whose host data socket has not come yet. */
  pending: CloseReason;
}

export const END_REASONS: Record<EndCause, EndReasons> = {
  'new-generation': {
    control: 'replaced by a newer generation',
    spliced: 'peer connection dropped',
    pending: 'peer connection dropped',
  },
  'orphan-expired': { control: null, spliced: 'peer connection dropped', pending: 'relay connection rejected' },
  'signed-out': { control: null, spliced: 'peer connection dropped', pending: 'signed-out' },
  'identity-changed': {
    control: 'refresh identity changed',
    spliced: 'peer connection dropped',
    pending: 'relay connection rejected',
  },
  'auth-expired': {
    control: 'relay authorization expired',
    spliced: 'peer connection dropped',
    pending: 'relay connection rejected',
  },
  'lease-expired': {
    control: 'control lease expired',
    spliced: 'resolve configured director',
    pending: 'resolve configured director',
  },
  drained: {
    control: 'resolve configured director',
    spliced: 'resolve configured director',
    pending: 'resolve configured director',
  },
  retired: {
    control: 'control migration completed',
    spliced: 'resolve configured director',
    pending: 'resolve configured director',
  },
  moved: { control: 'assignment moved', spliced: 'host seated elsewhere', pending: 'host seated elsewhere' },
  'assignment-missing': {
    control: 'control assignment missing',
    spliced: 'resolve configured director',
    pending: 'resolve configured director',
  },
  'activity-moved': {
    control: 'control activity moved',
    spliced: 'resolve configured director',
    pending: 'resolve configured director',
  },
  demoted: {
    control: 'seated on a newer cell',
    spliced: 'host seated elsewhere',
    pending: 'host seated elsewhere',
  },
  'not-reregistered': {
    control: 'control could not re-register',
    spliced: 'host seated elsewhere',
    pending: 'host seated elsewhere',
  },
  'stale-incarnation': {
    control: 'relay draining',
    spliced: 'relay draining',
    pending: 'relay draining',
  },
};
