import type { CloseReason } from '../../contract/index.ts';
import type { Socket } from '../uws.ts';
import { Flow } from './flow.ts';
import { closeTrigger, type SpliceSide, type SpliceTrigger } from './splice-triggers.ts';
import type { Splicer } from './splicer.ts';

export interface SplicePeerHandlers {
  message(data: ArrayBuffer, isBinary: boolean): void;
  drain(): void;
  closed(code: number, reason: string): void;
}

/** One end of a splice. */
export interface SplicePeer {
  readonly raw: Socket | null;
  /** False as soon as either side has begun to close. */
  readonly open: boolean;
  /** Takes the place of whoever listened before. */
  handle(handlers: SplicePeerHandlers): void;
  /** In bounded time (`endSocket`). */
  close(reason: CloseReason): void;
}

/**
 * A phone's socket and a host's data socket, joined: whole messages in order, opcode kept, nothing of its own.
 *
 *   forwarding ── a peer is gone, a bound is passed, `close` ──→ flushing ── drained, wedged, gone ──→ over
 *
 * Made by {@link Splicer.join}.
 */
export class Splice {
  readonly #splicer: Splicer;
  readonly #client: SplicePeer;
  readonly #host: SplicePeer;
  readonly toHost: Flow;
  readonly toClient: Flow;
  #trigger: SpliceTrigger | null = null;
  readonly #ended: (trigger: SpliceTrigger) => void;

  constructor(
    splicer: Splicer,
    client: SplicePeer & { raw: Socket },
    host: SplicePeer & { raw: Socket },
    ended: (trigger: SpliceTrigger) => void,
  ) {
    this.#splicer = splicer;
    this.#client = client;
    this.#host = host;
    this.#ended = ended;
    this.toHost = new Flow(this, 'client', client.raw, host.raw);
    this.toClient = new Flow(this, 'host', host.raw, client.raw);
    client.handle(this.#handlers(this.toHost, this.toClient));
    host.handle(this.#handlers(this.toClient, this.toHost));
  }

  /** Why it ended, once it has. What waits for the peer that is left may still be on its way. */
  get trigger(): SpliceTrigger | null {
    return this.#trigger;
  }

  /** From outside: the session is over, the cell drains. Both peers get what is queued, if they take it within a second. */
  close(reason: CloseReason): void {
    this.#splicer.end(this, 'external', reason);
  }

  peer(side: SpliceSide): SplicePeer {
    return side === 'client' ? this.#client : this.#host;
  }

  /** What is on its way to `side`. */
  flowTo(side: SpliceSide): Flow {
    return side === 'client' ? this.toClient : this.toHost;
  }

  /** For the splicer: false if it had ended before. */
  markEnded(trigger: SpliceTrigger): boolean {
    if (this.#trigger !== null) return false;
    this.#trigger = trigger;
    return true;
  }

  tellEnded(trigger: SpliceTrigger): void {
    this.#ended(trigger);
  }

  #handlers(outgoing: Flow, incoming: Flow): SplicePeerHandlers {
    const splicer = this.#splicer;
    return {
      message: (data, isBinary) => splicer.forward(outgoing, data, isBinary),
      drain: () => splicer.drained(incoming),
      closed: (code, reason) => splicer.peerClosed(this, outgoing.from, closeTrigger(outgoing.from, code, reason)),
    };
  }
}
