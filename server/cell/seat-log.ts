import { LIMITS } from '../../contract/index.ts';
import type {
  FeedChange,
  FeedCursor,
  FeedLeaver,
  FeedSeat,
  SeatChangeKind,
  SeatState,
} from '../../contract/seat-feed.ts';
import type { Clock } from '../clock.ts';
import type { ControlState } from './control-states.ts';
import { type HostName, hostKey } from './seats.ts';

/** A host's control as the log knows it. */
export interface SeatedSession {
  readonly host: HostName;
  readonly epoch: number;
  readonly generation: number;
  readonly state: ControlState;
}

interface Seat {
  readonly session: SeatedSession;
  readonly joinedAt: number;
  /** As last told. */
  state: SeatState;
}

/** One line of the log; its sequence number is its place. */
interface Entry {
  readonly kind: SeatChangeKind;
  readonly host: HostName;
  readonly epoch: number;
  readonly generation: number;
  readonly at: number;
  /** With a join. */
  readonly state: SeatState | undefined;
  /** With a leave. */
  readonly closeCode: number | undefined;
  /** With a booking, and the join that used it. */
  readonly reservedBy: string | undefined;
}

export interface Leaver {
  readonly epoch: number;
  readonly closeCode: number;
  /** Epoch milliseconds. */
  readonly at: number;
}

interface KeptLeaver extends Leaver {
  readonly host: HostName;
  /** On the monotonic clock. */
  readonly leftAt: number;
}

export type SeatPage =
  | { seq: number; full: FeedSeat[]; recentlyLeft: FeedLeaver[] }
  | { seq: number; changes: FeedChange[]; more: boolean };

/**
 * What a cell tells about its seats: who joined, left, may take phones no longer or again, and who was promised a seat; in
 * order, numbered from 1 in every process, the newest 20 000. Seats and leavers are kept beside it for readers that are too
 * far behind, or new.
 *
 * A seat lasts as long as a socket of its session is open or may still be replaced: a host that lost its socket stays seated
 * for the orphan's grace, since its phones are still spliced here, and moving it would cut them; a session that was ended
 * stays until its socket has closed. So the only host that has left is one that nothing here is bound to.
 */
export class SeatLog {
  readonly #clock: Clock;
  readonly #incarnation: string;
  readonly #seats = new Map<string, Seat>();
  /** By host, the longest gone first. */
  readonly #leavers = new Map<string, KeptLeaver>();
  /** Number `n` is at `(n - 1) % seatRingChanges`. */
  readonly #ring: Entry[] = [];
  #head = 0;

  constructor(clock: Clock, incarnation: string) {
    this.#clock = clock;
    this.#incarnation = incarnation;
  }

  /** How many hosts a reader holds that has applied everything. */
  get seats(): number {
    return this.#seats.size;
  }

  /** A control has taken its seat, or a new socket in it: a host joins again without leaving. */
  joined(session: SeatedSession, { reservedBy }: { reservedBy?: string } = {}): void {
    const key = hostKey(session.host);
    const before = this.#seats.get(key);
    // A host whose generations were forgotten starts at 1 again, and a reader would take its join for an old one.
    if (before !== undefined && before.session.generation > session.generation) {
      this.#append('leave', before.session, { closeCode: NO_CLOSE_CODE });
    }
    const state = stateOf(session);
    const joinedAt = this.#append('join', session, { state, reservedBy });
    this.#seats.set(key, { session, joinedAt, state });
    this.#leavers.delete(key);
  }

  /** The last socket of a session has closed. Nothing, if a newer session has the seat. */
  left(session: SeatedSession, closeCode: number): void {
    const key = hostKey(session.host);
    if (this.#seats.get(key)?.session !== session) return;
    this.#seats.delete(key);
    const at = this.#append('leave', session, { closeCode });
    this.#leavers.delete(key);
    this.#leavers.set(key, { host: session.host, epoch: session.epoch, closeCode, at, leftAt: this.#clock.now() });
    this.#forgetLeavers();
  }

  /** Tells it if readers believe otherwise. */
  stateChanged(session: SeatedSession): void {
    const seat = this.#seats.get(hostKey(session.host));
    const state = stateOf(session);
    if (seat?.session !== session || session.state === 'closed' || seat.state === state) return;
    seat.state = state;
    this.#append(state, session, {});
  }

  /** A director was promised a seat for the host. */
  reserved(host: HostName, epoch: number, reservedBy: string): void {
    this.#append('reserve', { host, epoch, generation: 0 }, { reservedBy });
  }

  /** When the session took its seat, or its latest socket, in epoch milliseconds; undefined once it has left. */
  joinedAt(session: SeatedSession): number | undefined {
    const seat = this.#seats.get(hostKey(session.host));
    return seat?.session === session ? seat.joinedAt : undefined;
  }

  /** How the host left its last seat, if that is less than 10 min ago and it has not come back. */
  leaver(host: HostName): Leaver | undefined {
    const leaver = this.#leavers.get(hostKey(host));
    return leaver !== undefined && this.#remembers(leaver) ? leaver : undefined;
  }

  /** What a reader needs that stands at the cursor: the next changes, or everything if they are not to be had. */
  page(cursor: FeedCursor | null): SeatPage {
    if (cursor === null || cursor.incarnation !== this.#incarnation) return this.#everything();
    if (cursor.seq > this.#head || cursor.seq < this.#head - this.#ring.length) return this.#everything();
    const seq = Math.min(this.#head, cursor.seq + LIMITS.feedPageChanges);
    const changes: FeedChange[] = [];
    for (let n = cursor.seq + 1; n <= seq; n += 1) changes.push(this.#change(n));
    return { seq, changes, more: seq < this.#head };
  }

  #everything(): SeatPage {
    this.#forgetLeavers();
    const full: FeedSeat[] = [];
    for (const { session, joinedAt, state } of this.#seats.values()) {
      const { host, epoch, generation } = session;
      full.push({ userId: host.userId, relayHostId: host.relayHostId, epoch, generation, state, joinedAt });
    }
    const recentlyLeft: FeedLeaver[] = [...this.#leavers.values()]
      .slice(-LIMITS.feedLeaversSent)
      .map(({ host, epoch, closeCode, at }) => ({
        userId: host.userId,
        relayHostId: host.relayHostId,
        epoch,
        closeCode,
        at,
      }));
    return { seq: this.#head, full, recentlyLeft };
  }

  #change(seq: number): FeedChange {
    const entry = this.#ring[(seq - 1) % LIMITS.seatRingChanges] as Entry;
    const { kind, host, epoch, generation, at, state, closeCode, reservedBy } = entry;
    // What is undefined is not written.
    const { userId, relayHostId } = host;
    return { seq, kind, userId, relayHostId, epoch, generation, state, closeCode, reservedBy, at };
  }

  /** Answers when, in epoch milliseconds. */
  #append(
    kind: SeatChangeKind,
    { host, epoch, generation }: Pick<SeatedSession, 'host' | 'epoch' | 'generation'>,
    { state, closeCode, reservedBy }: Partial<Pick<Entry, 'state' | 'closeCode' | 'reservedBy'>>,
  ): number {
    const at = Math.floor(this.#clock.wallNow());
    this.#ring[this.#head % LIMITS.seatRingChanges] = {
      kind,
      host,
      epoch,
      generation,
      at,
      state,
      closeCode,
      reservedBy,
    };
    this.#head += 1;
    return at;
  }

  #forgetLeavers(): void {
    for (const [key, leaver] of this.#leavers) {
      if (this.#leavers.size <= LIMITS.feedLeaversKept && this.#remembers(leaver)) return;
      this.#leavers.delete(key);
    }
  }

  #remembers({ leftAt }: KeptLeaver): boolean {
    return this.#clock.now() - leftAt <= LIMITS.rejoinMs;
  }
}

/** Of a session that no close frame ended. */
const NO_CLOSE_CODE = 1006;

/** An orphan may come back to all it had. */
function stateOf({ state }: SeatedSession): SeatState {
  return state === 'drain-only' ? 'drain-only' : 'active';
}
