import { CLOSE } from '../contract/close-codes.ts';

/**
 * What a phone does when, without doing it.
 *
 *   idle ── start ─▶ dialling ── hello ─▶ confirming ─▶ connected
 *                     ▲  │ moved              │             │
 *            waiting-dial│                    ▼             ▼
 *                        ▼            (any end: a wait, then dial or resolve)
 *      waiting-resolve ▶ resolving ─▶ redialling ── hello ─▶ confirming
 *                             │
 *                             ▼ every credential rejected
 *                          rejected (asks again after 1 to 15 min)
 *
 * A dial that failed may mean that the host lives elsewhere now, so the next one asks a director first; a connection that
 * broke is dialled again where it was.
 *
 * T1 Between `start` and `stop` there is always an attempt in flight (bounded in time), a timer, or a connection.
 * Enforced by `KEEPS_GOING`; tested by test/client/phone-machine.test.ts.
 * T2 No circle of states is free of a wait, save that a moved host or a second credential is followed at once, once.
 */
export const PHONE_STATES = [
  'idle',
  'resolving',
  'dialling',
  /** A dial right after a director was asked. */
  'redialling',
  'confirming',
  'connected',
  'waiting-dial',
  'waiting-resolve',
  'rejected',
  'stopped',
] as const;
export type PhoneState = (typeof PHONE_STATES)[number];

export const PHONE_EVENTS = [
  /** The app wants to be connected; while waiting: now, not later. */
  'start',
  'resolved',
  /** No director answered: the cell known so far is still worth a dial. */
  'resolve-unanswered',
  /** A director said later. */
  'resolve-busy',
  'hello',
  'confirmed',
  'confirm-failed',
  /** 4401, or 401 from a director: this credential is not taken. */
  'rejected',
  /** The same, and there was no other credential left to try. */
  'all-rejected',
  /** 4404. */
  'host-offline',
  /** 4409 or 4503: the host is served elsewhere. */
  'moved',
  /** 4408, 4429, 1006 after a hello, and whatever else ends a connection. */
  'dropped',
  /** No hello: unreachable, refused, too late, not understood. */
  'dial-failed',
  'due',
  'stop',
] as const;
export type PhoneEvent = (typeof PHONE_EVENTS)[number];

export type PhoneEffect =
  | 'resolve'
  | 'dial'
  | 'confirm'
  | 'announce'
  | 'next-credential'
  /** From now on the first credential again, and the app is told that it should provide a new one. */
  | 'report-rejected'
  | 'arm-backoff'
  | 'arm-offline'
  | 'arm-probe'
  | 'cancel-timer'
  | 'stop';

export interface PhoneStep {
  readonly to: PhoneState;
  readonly effects: readonly PhoneEffect[];
}

/** In which states the phone goes on by itself, and by what. */
export const KEEPS_GOING: Record<PhoneState, 'attempt' | 'timer' | 'connection' | 'nothing'> = {
  idle: 'nothing',
  resolving: 'attempt',
  dialling: 'attempt',
  redialling: 'attempt',
  confirming: 'attempt',
  connected: 'connection',
  'waiting-dial': 'timer',
  'waiting-resolve': 'timer',
  rejected: 'timer',
  stopped: 'nothing',
};

/** How a close code ends a dial or a connection that a resume token opened; every other code is `dropped`. */
const CLOSE_EVENTS: Readonly<Record<number, PhoneEvent>> = {
  [CLOSE.BAD_OUTER_CREDENTIAL]: 'rejected',
  [CLOSE.HOST_OFFLINE]: 'host-offline',
  [CLOSE.PEER_DROPPED]: 'dropped',
  [CLOSE.WRONG_CELL]: 'moved',
  [CLOSE.LIMIT_EXCEEDED]: 'dropped',
  [CLOSE.DRAINING]: 'moved',
};

/** @param answered whether the relay had spoken: a code of ours, or a hello before it */
export function endEvent(code: number, answered: boolean): PhoneEvent {
  return CLOSE_EVENTS[code] ?? (answered ? 'dropped' : 'dial-failed');
}

const to = (state: PhoneState, ...effects: PhoneEffect[]): PhoneStep => ({ to: state, effects });

function staying(state: PhoneState): Record<PhoneEvent, PhoneStep> {
  const step = to(state);
  return {
    start: step,
    resolved: step,
    'resolve-unanswered': step,
    'resolve-busy': step,
    hello: step,
    confirmed: step,
    'confirm-failed': step,
    rejected: step,
    'all-rejected': step,
    'host-offline': step,
    moved: step,
    dropped: step,
    'dial-failed': step,
    due: step,
    stop: to('stopped', 'stop'),
  };
}

const ALL_REJECTED = to('rejected', 'report-rejected', 'arm-probe');

/** Ends of a dial that read the same whether or not a director was asked before it. */
const DIAL_ENDS = {
  hello: to('confirming', 'confirm'),
  'all-rejected': ALL_REJECTED,
  'host-offline': to('waiting-resolve', 'arm-offline'),
  dropped: to('waiting-dial', 'arm-backoff'),
  'dial-failed': to('waiting-resolve', 'arm-backoff'),
};

/** Ends of a connection. Even a move is followed after a short wait: a cell that takes and drops would be hammered. */
const CONNECTION_ENDS = {
  rejected: to('waiting-resolve', 'next-credential', 'arm-backoff'),
  'all-rejected': ALL_REJECTED,
  'host-offline': to('waiting-resolve', 'arm-offline'),
  moved: to('waiting-resolve', 'arm-backoff'),
  dropped: to('waiting-dial', 'arm-backoff'),
  'dial-failed': to('waiting-dial', 'arm-backoff'),
};

export const PHONE_TABLE: Record<PhoneState, Record<PhoneEvent, PhoneStep>> = {
  idle: { ...staying('idle'), start: to('dialling', 'dial') },
  resolving: {
    ...staying('resolving'),
    resolved: to('redialling', 'dial'),
    'resolve-unanswered': to('redialling', 'dial'),
    'resolve-busy': to('waiting-resolve', 'arm-backoff'),
    rejected: to('resolving', 'next-credential', 'resolve'),
    'all-rejected': ALL_REJECTED,
  },
  dialling: {
    ...staying('dialling'),
    ...DIAL_ENDS,
    rejected: to('dialling', 'next-credential', 'dial'),
    moved: to('resolving', 'resolve'),
  },
  redialling: {
    ...staying('redialling'),
    ...DIAL_ENDS,
    rejected: to('redialling', 'next-credential', 'dial'),
    moved: to('waiting-resolve', 'arm-backoff'),
  },
  confirming: {
    ...staying('confirming'),
    ...CONNECTION_ENDS,
    confirmed: to('connected', 'announce'),
    'confirm-failed': to('waiting-dial', 'arm-backoff'),
  },
  connected: { ...staying('connected'), ...CONNECTION_ENDS },
  'waiting-dial': {
    ...staying('waiting-dial'),
    start: to('dialling', 'cancel-timer', 'dial'),
    due: to('dialling', 'dial'),
  },
  'waiting-resolve': {
    ...staying('waiting-resolve'),
    start: to('resolving', 'cancel-timer', 'resolve'),
    due: to('resolving', 'resolve'),
  },
  rejected: {
    ...staying('rejected'),
    start: to('resolving', 'cancel-timer', 'resolve'),
    due: to('resolving', 'resolve'),
  },
  stopped: { ...staying('stopped'), stop: to('stopped') },
};
