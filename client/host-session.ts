import type { PendingConn } from '../contract/control.ts';
import { LIMITS } from '../contract/limits.ts';
import type { Timer } from './clock.ts';
import type { ControlTarget, HelloAck, HostControl } from './host-control.ts';
import { type DataSocket, type DataTicket, type HostConnection, openDataSocket } from './host-data.ts';
import { CLIENT_LIMITS } from './limits.ts';
import type { Ports } from './ports.ts';

/** Twice what a cell allows: the sockets of an old generation may still be closing when new ones are asked for. */
const MAX_DATA_SOCKETS = 2 * LIMITS.maxConnectionsPerHost;

export interface SessionHandlers {
  connection(connection: HostConnection): void;
  warning(text: string): void;
  /** Nothing is left of a session that was told to retire. */
  gone(session: HostSession): void;
}

/** One generation on one cell: the active control, the secret to go on with, and the phones connected through it. */
export class HostSession {
  readonly generation: number;
  readonly #ports: Ports;
  readonly #handlers: SessionHandlers;
  readonly #sockets = new Map<string, DataSocket>();
  #target: ControlTarget;
  #control: HostControl | null;
  #secret: string;
  #leaseExpiresAt: number;
  #retiring: Timer | null = null;
  #drainEndsAt: number | null = null;
  #former: { control: HostControl; timer: Timer } | null = null;
  #over = false;

  constructor(ports: Ports, target: ControlTarget, control: HostControl, ack: HelloAck, handlers: SessionHandlers) {
    this.#ports = ports;
    this.#handlers = handlers;
    this.#target = target;
    this.generation = ack.generation;
    this.#control = control;
    this.#secret = ack.controlResumeSecret;
    this.#leaseExpiresAt = ack.leaseExpiresAt;
    this.#attachAll(ack.pendingConns);
  }

  get target(): ControlTarget {
    return this.#target;
  }

  get control(): HostControl | null {
    return this.#control;
  }

  get leaseExpiresAt(): number {
    return this.#leaseExpiresAt;
  }

  get resume(): { previousGeneration: number; controlResumeSecret: string } {
    return { previousGeneration: this.generation, controlResumeSecret: this.#secret };
  }

  /** A rebind: same generation, so the phones stay. The old control lives on briefly for answers under way. */
  rebound(target: ControlTarget, control: HostControl, ack: HelloAck): void {
    this.#endFormer();
    const old = this.#control;
    if (old) {
      const timer = this.#ports.clock.after(CLIENT_LIMITS.reboundControlMs, () => this.#endFormer());
      this.#former = { control: old, timer };
    }
    this.#target = target;
    this.#control = control;
    this.#secret = ack.controlResumeSecret;
    this.#leaseExpiresAt = ack.leaseExpiresAt;
    this.#drainEndsAt = null;
    this.#attachAll(ack.pendingConns);
  }

  controlLost(): void {
    this.#control = null;
    if (this.#retiring) this.#goIfDone();
  }

  draining(graceMs: number): void {
    this.#drainEndsAt = this.#ports.clock.now() + graceMs;
  }

  attach(ticket: Omit<DataTicket, 'cellUrl' | 'generation'>): void {
    if (this.#sockets.has(ticket.connId)) return;
    if (this.#sockets.size >= MAX_DATA_SOCKETS) {
      this.#handlers.warning('conn-open ignored: too many connections');
      return;
    }
    const socket = openDataSocket(
      this.#ports,
      { ...ticket, cellUrl: this.#target.cellUrl, generation: this.generation },
      {
        joined: (connection) => this.#handlers.connection(connection),
        ended: () => {
          this.#sockets.delete(ticket.connId);
          if (this.#retiring) this.#goIfDone();
        },
      },
    );
    this.#sockets.set(ticket.connId, socket);
  }

  /**
   * The host is seated elsewhere: what runs here may finish, until the drain's grace ends, or without a drain for as long
   * as a cell keeps splices whose control is gone.
   */
  retire(): void {
    const graceMs =
      this.#drainEndsAt === null ? LIMITS.orphanGraceMs : Math.max(0, this.#drainEndsAt - this.#ports.clock.now());
    this.#retiring = this.#ports.clock.after(graceMs, () => this.end());
    this.#goIfDone();
  }

  end(): void {
    if (this.#over) return;
    this.#over = true;
    this.#retiring?.cancel();
    this.#endFormer();
    this.#control?.terminate();
    for (const socket of this.#sockets.values()) socket.terminate();
    this.#handlers.gone(this);
  }

  #attachAll(pending: readonly PendingConn[]): void {
    for (const { connId, connTicket, kind, relayDeviceId } of pending) {
      this.attach({ connId, connTicket, kind, relayDeviceId, attachDeadlineMs: LIMITS.hostAttachDeadlineMs });
    }
  }

  #endFormer(): void {
    this.#former?.timer.cancel();
    this.#former?.control.terminate();
    this.#former = null;
  }

  #goIfDone(): void {
    if (this.#sockets.size === 0 && (this.#control?.waiting ?? 0) === 0) this.end();
  }
}
