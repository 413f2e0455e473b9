import { type ControlError, cellFrames, type HostFrame, type HostFrameOf, hostFrames } from '../../contract/index.ts';
import type { CellCore } from './cell-core.ts';
import { COMMANDS, type Command, runCommand } from './commands.ts';
import type { ControlSession } from './control-session.ts';
import { decodeText } from './first-frame.ts';
import { guard } from './guard.ts';
import type { PeerSocket } from './peer-socket.ts';

/** A desktop has a handful of requests open at once; what is more is refused, not queued. */
const MAX_COMMANDS_IN_FLIGHT = 32;
const MAX_REFRESHES_IN_FLIGHT = 4;

interface Refreshing {
  done: Promise<void>;
  inFlight: number;
}

/** What a seated host sends. Answers go to the socket that asked: a rebind takes the session away from it, not the request. */
export class ControlMessages {
  readonly #core: CellCore;
  readonly #inFlight = new WeakMap<ControlSession, number>();
  /** Refreshes under way: what a host sends behind one is judged by the token it has just sent. */
  readonly #refreshing = new WeakMap<ControlSession, Refreshing>();

  constructor(core: CellCore) {
    this.#core = core;
  }

  receive(session: ControlSession, socket: PeerSocket, data: ArrayBuffer, isBinary: boolean): void {
    if (isBinary || !session.serving) return;
    const read = hostFrames.read(decodeText(data));
    if (read.ok) this.#dispatch(session, socket, read.frame);
    else if (read.error === 'invalid_json') session.closeSocket('invalid control JSON');
    else {
      const code = read.error === 'unknown_type' ? 'unknown_control_message' : 'invalid_control_message';
      this.#refuse(socket, code, read.reqId);
    }
  }

  #dispatch(session: ControlSession, socket: PeerSocket, frame: HostFrame): void {
    if (isCommand(frame)) guard(this.#core.log, socket, this.#command(session, socket, frame));
    else if (frame.type === 'pong') {
      const sample = session.pong(frame.t);
      if (sample !== null) this.#core.metrics.roundTrip.observe(sample.roundTripMs / 1_000);
    } else if (frame.type === 'auth-refresh') this.#startRefresh(session, socket, frame);
    else this.#refuse(socket, 'invalid_control_message');
  }

  async #command(session: ControlSession, socket: PeerSocket, command: Command): Promise<void> {
    const inFlight = this.#inFlight.get(session) ?? 0;
    if (inFlight >= MAX_COMMANDS_IN_FLIGHT) {
      this.#count(command, 'too_many_requests_in_flight');
      this.#refuse(socket, 'too_many_requests_in_flight', command.reqId);
      return;
    }
    this.#inFlight.set(session, inFlight + 1);
    try {
      await this.#refreshing.get(session)?.done;
      const answer = await runCommand(this.#core, session, command);
      if ('error' in answer) {
        this.#count(command, answer.error);
        this.#refuse(socket, answer.error, command.reqId);
      } else {
        this.#count(command, 'ok');
        const { type, ...fields } = answer;
        socket.send(cellFrames.write(type, fields as never));
      }
    } catch (error) {
      this.#core.log.warn({ event: 'orca_relay_control_command_failed', command: command.type, error });
      this.#count(command, 'relay_temporarily_unavailable');
      this.#refuse(socket, 'relay_temporarily_unavailable', command.reqId);
    } finally {
      this.#inFlight.set(session, (this.#inFlight.get(session) ?? 1) - 1);
    }
  }

  #startRefresh(session: ControlSession, socket: PeerSocket, frame: HostFrameOf<'auth-refresh'>): void {
    const refreshing = this.#refreshing.get(session) ?? { done: Promise.resolve(), inFlight: 0 };
    if (refreshing.inFlight >= MAX_REFRESHES_IN_FLIGHT) {
      this.#refuse(socket, 'too_many_requests_in_flight');
      return;
    }
    refreshing.inFlight += 1;
    refreshing.done = refreshing.done
      .then(() => this.#refresh(session, socket, frame))
      .finally(() => {
        refreshing.inFlight -= 1;
        if (refreshing.inFlight === 0) this.#refreshing.delete(session);
      });
    guard(this.#core.log, socket, refreshing.done);
    this.#refreshing.set(session, refreshing);
  }

  /** Only the same host of the same account may go on; a key server that is away decides nothing. */
  async #refresh(
    session: ControlSession,
    socket: PeerSocket,
    { relayJwt }: HostFrameOf<'auth-refresh'>,
  ): Promise<void> {
    let identity: Awaited<ReturnType<CellCore['tokens']['verify']>>;
    try {
      identity = await this.#core.tokens.verify(relayJwt);
    } catch (error) {
      this.#core.log.warn({ event: 'orca_relay_control_refresh_unanswered', error });
      this.#refuse(socket, 'relay_temporarily_unavailable');
      return;
    }
    if (session.socket !== socket || !session.serving) return;
    const known = session.identity;
    if (
      identity !== null &&
      identity.userId === known.userId &&
      identity.profileId === known.profileId &&
      identity.organizationId === known.organizationId &&
      identity.relayHostId === known.relayHostId
    ) {
      session.refresh(identity);
    } else session.end('identity-changed');
  }

  #refuse(socket: PeerSocket, code: ControlError, reqId?: string): void {
    socket.send(cellFrames.write('control-error', reqId === undefined ? { code } : { reqId, code }));
  }

  #count(command: Command, outcome: string): void {
    this.#core.metrics.commands.inc({ command: command.type, outcome });
  }
}

function isCommand(frame: HostFrame): frame is Command {
  return Object.hasOwn(COMMANDS, frame.type);
}
