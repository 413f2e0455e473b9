/**
 * What a host does when, without doing it.
 *
 *   idle ── start ─▶ assigning ─▶ opening ─▶ online ◀─▶ renewing
 *                        ▲  │        │         │ drain
 *                        │  ▼        ▼         ▼
 *                        waiting ◀───┘      moving ─▶ switching ─▶ online (the target first, then the old cell goes)
 *                                              ▲  ▼       ▼
 *                                              moving-wait
 *
 * H1 Between `start` and `stop` or a refusal there is always something that goes on by itself: an attempt in flight
 * (bounded in time), a timer, or an active control (which dies of silence). Enforced by `KEEPS_GOING`; tested by
 * test/client/host-machine.test.ts.
 * H2 There is one timer; every state that needs one arms it as it is entered and nothing else does.
 */
export const HOST_STATES = [
  'idle',
  'assigning',
  'opening',
  'waiting',
  'online',
  'renewing',
  'moving',
  'switching',
  'moving-wait',
  'refused',
  'stopped',
] as const;
export type HostState = (typeof HOST_STATES)[number];

export const HOST_EVENTS = [
  /** The app wants to be reachable; while waiting: now, not later. */
  'start',
  'assigned',
  'assign-failed',
  /** A 4xx: the same question would get the same answer. */
  'assign-refused',
  'opened',
  'open-failed',
  /** The cell does not know the secret (any more): only a fresh generation will do. */
  'resume-refused',
  /** The active control ended, for whatever reason. */
  'lost',
  'drain',
  'due',
  'stop',
] as const;
export type HostEvent = (typeof HOST_EVENTS)[number];

export type HostEffect =
  | 'assign'
  /** Open a control at the assigned cell: a rebind where the secret of a session there is known, else afresh. */
  | 'open'
  | 'open-fresh'
  | 'rebind'
  | 'abandon-attempt'
  /** The opened control becomes the active one; a former cell retires. */
  | 'adopt'
  | 'arm-backoff'
  | 'arm-renewal'
  | 'arm-renewal-retry'
  | 'cancel-timer'
  | 'retire-cell'
  | 'stop';

export interface HostStep {
  readonly to: HostState;
  readonly effects: readonly HostEffect[];
}

/** In which states the relay connection goes on by itself, and by what. */
export const KEEPS_GOING: Record<HostState, 'attempt' | 'timer' | 'control' | 'nothing'> = {
  idle: 'nothing',
  assigning: 'attempt',
  opening: 'attempt',
  waiting: 'timer',
  online: 'control',
  renewing: 'attempt',
  moving: 'attempt',
  switching: 'attempt',
  'moving-wait': 'timer',
  refused: 'nothing',
  stopped: 'nothing',
};

const to = (state: HostState, ...effects: HostEffect[]): HostStep => ({ to: state, effects });

function staying(state: HostState): Record<HostEvent, HostStep> {
  const step = to(state);
  return {
    start: step,
    assigned: step,
    'assign-failed': step,
    'assign-refused': step,
    opened: step,
    'open-failed': step,
    'resume-refused': step,
    lost: step,
    drain: step,
    due: step,
    stop: to('stopped', 'stop'),
  };
}

export const HOST_TABLE: Record<HostState, Record<HostEvent, HostStep>> = {
  idle: { ...staying('idle'), start: to('assigning', 'assign') },
  assigning: {
    ...staying('assigning'),
    assigned: to('opening', 'open'),
    'assign-failed': to('waiting', 'arm-backoff'),
    'assign-refused': to('refused', 'retire-cell'),
  },
  opening: {
    ...staying('opening'),
    opened: to('online', 'adopt', 'arm-renewal'),
    'open-failed': to('waiting', 'arm-backoff'),
    'resume-refused': to('opening', 'open-fresh'),
  },
  waiting: {
    ...staying('waiting'),
    start: to('assigning', 'cancel-timer', 'assign'),
    due: to('assigning', 'assign'),
  },
  online: {
    ...staying('online'),
    lost: to('assigning', 'cancel-timer', 'assign'),
    drain: to('moving', 'cancel-timer', 'assign'),
    due: to('renewing', 'rebind'),
  },
  renewing: {
    ...staying('renewing'),
    opened: to('online', 'adopt', 'arm-renewal'),
    'open-failed': to('online', 'arm-renewal-retry'),
    'resume-refused': to('online', 'arm-renewal-retry'),
    // A cell closes the old control as it accepts the new one, and that may be seen first.
    lost: to('opening'),
    drain: to('moving', 'abandon-attempt', 'assign'),
  },
  moving: {
    ...staying('moving'),
    assigned: to('switching', 'open'),
    'assign-failed': to('moving-wait', 'arm-backoff'),
    'assign-refused': to('refused', 'retire-cell'),
    lost: to('assigning'),
  },
  switching: {
    ...staying('switching'),
    opened: to('online', 'adopt', 'arm-renewal'),
    'open-failed': to('moving-wait', 'arm-backoff'),
    'resume-refused': to('switching', 'open-fresh'),
    lost: to('opening'),
  },
  'moving-wait': {
    ...staying('moving-wait'),
    start: to('moving', 'cancel-timer', 'assign'),
    due: to('moving', 'assign'),
    lost: to('waiting'),
  },
  refused: { ...staying('refused'), start: to('assigning', 'assign') },
  stopped: { ...staying('stopped'), stop: to('stopped') },
};
