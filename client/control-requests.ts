import type { CellFrame, CellFrameOf } from '../contract/control.ts';
import type { Clock, Timer } from './clock.ts';
import { CLIENT_LIMITS } from './limits.ts';

/** Which answer belongs to which request. */
export const CONTROL_REPLIES = {
  'invite-create': 'invite-created',
  'device-credential-install': 'device-credential-installed',
  'device-credential-install-status': 'device-credential-install-status-result',
  'device-resume-confirm': 'device-resume-confirmed',
  'device-revoke': 'device-revoked',
} as const;
export type ControlRequest = keyof typeof CONTROL_REPLIES;
export type ControlReply<T extends ControlRequest> = CellFrameOf<(typeof CONTROL_REPLIES)[T]>;

/**
 * A request on the control channel that brought no result. `code` is the relay's own, or `request_timeout`,
 * `control_lost`, `not_connected` or `too_many_requests`. After the first two the relay may have done it all the same:
 * install and confirm may be repeated with the same `reqId`, and `installStatus` tells.
 */
export class ControlRequestError extends Error {
  readonly code: string;

  constructor(code: string) {
    super(`the relay did not do it: ${code}`);
    this.name = 'ControlRequestError';
    this.code = code;
  }
}

interface Pending {
  replyType: CellFrame['type'];
  timer: Timer;
  resolve(frame: CellFrame): void;
  reject(error: ControlRequestError): void;
}

/** Requests of one control that wait for their answer, by reqId. */
export class ControlRequests {
  readonly #clock: Clock;
  readonly #onTimeout: () => void;
  readonly #pending = new Map<string, Pending>();

  constructor(clock: Clock, onTimeout: () => void) {
    this.#clock = clock;
    this.#onTimeout = onTimeout;
  }

  get size(): number {
    return this.#pending.size;
  }

  /** Rejects with `ControlRequestError`. */
  expect<T extends ControlRequest>(request: T, reqId: string, send: () => void): Promise<ControlReply<T>> {
    return new Promise((resolve, reject) => {
      if (this.#pending.size >= CLIENT_LIMITS.maxControlRequests || this.#pending.has(reqId)) {
        reject(new ControlRequestError('too_many_requests'));
        return;
      }
      const timer = this.#clock.after(CLIENT_LIMITS.controlRequestMs, () => {
        this.#pending.delete(reqId);
        reject(new ControlRequestError('request_timeout'));
        this.#onTimeout();
      });
      const settle = resolve as (frame: CellFrame) => void;
      this.#pending.set(reqId, { replyType: CONTROL_REPLIES[request], timer, resolve: settle, reject });
      send();
    });
  }

  /** @returns false when nobody waits for that frame */
  settle(frame: CellFrame): boolean {
    const reqId = 'reqId' in frame ? frame.reqId : undefined;
    const pending = reqId === undefined ? undefined : this.#pending.get(reqId);
    if (!pending || reqId === undefined) return false;
    const failed = frame.type === 'control-error';
    if (!failed && frame.type !== pending.replyType) return false;
    this.#pending.delete(reqId);
    pending.timer.cancel();
    if (failed) pending.reject(new ControlRequestError(frame.code));
    else pending.resolve(frame);
    return true;
  }

  failAll(code: string): void {
    for (const pending of this.#pending.values()) {
      pending.timer.cancel();
      pending.reject(new ControlRequestError(code));
    }
    this.#pending.clear();
  }
}
