import { type CloseReason, LIMITS } from '../../contract/index.ts';
import type { Clock, Timer } from '../clock.ts';
import type { Metrics } from '../metrics.ts';
import { isClosed, SEND_REFUSED, type Socket } from '../uws.ts';
import type { Flow } from './flow.ts';
import { DIRECT_BYTES, Outbox } from './outbox.ts';
import { Splice, type SplicePeer } from './splice.ts';
import { SpliceBudget } from './splice-budget.ts';
import { createSpliceMetrics, type SpliceMetrics } from './splice-metrics.ts';
import { REASONS, type SpliceSide, type SpliceTrigger } from './splice-triggers.ts';

export interface SplicerOptions {
  clock: Clock;
  metrics: Metrics;
  /** Whether sources are held back; without it the bounded queue alone stands between a fast and a slow peer. */
  pausing: boolean;
}

/** How often slow targets are looked at: for progress, a wedge, a source that may have gone. */
const SWEEP_MS = 500;
/** A kernel may have room for long before it says so, which it does at a third of its buffer: ask by a ping. */
const PROBE_AFTER_MS = 1_000;
const PING_FRAME_BYTES = 2;
/** How long a source may go unseen. */
const LOOK_EVERY_MS = 2_000;
/** A look may bring a whole frame, so it is taken only while there is room for one. */
const LOOK_BELOW_BYTES = 1_048_576;
/**
 * What may come from a source after it was paused: the rest of a read (512 KiB), and in a look as much again, a frame aside.
 * Refusing that would lose what a slow but willing peer is owed.
 */
const OVERSHOOT_BYTES = LOOK_BELOW_BYTES + 1_048_576;

/** Both sides at once, or each after what waits for it. */
type Manner = 'now' | 'after-queue';

/**
 * All splices of a cell: one outbox, one budget, one timer that runs only while some peer is slow. Invariants:
 * 1. a target gets exactly what its source sent, in order, or a prefix of it and then a close;
 * 2. what waits for a target counts in the budget until it is sent, or its socket is being closed;
 * 3. a source is paused exactly while more than the low-water mark waits after more than the high-water mark did.
 */
export class Splicer {
  readonly #clock: Clock;
  readonly #pausing: boolean;
  readonly #metrics: SpliceMetrics;
  readonly #outbox = new Outbox<Flow>();
  readonly #budget = new SpliceBudget<Flow>();
  readonly #queueBytes: number;
  #turnScheduled = false;
  #sweep: Timer | undefined;

  constructor(options: SplicerOptions) {
    this.#clock = options.clock;
    this.#pausing = options.pausing;
    this.#queueBytes = LIMITS.spliceQueueBytes + (options.pausing ? OVERSHOOT_BYTES : 0);
    this.#metrics = createSpliceMetrics(options.metrics, options.pausing, () => this.#budget.total);
  }

  /** Bytes that wait for slow peers. */
  get queuedBytes(): number {
    return this.#budget.total;
  }

  /**
   * Forwards between the two from now on. `ended` is called once, when forwarding stops; what waits for the peer that is left
   * may still be on its way then. Null if either peer is gone already: the other is closed 4408.
   */
  join(client: SplicePeer, host: SplicePeer, ended: (trigger: SpliceTrigger) => void): Splice | null {
    if (!isReady(client) || !isReady(host)) {
      this.#metrics.closed('peer-gone');
      client.close(REASONS['peer-gone']);
      host.close(REASONS['peer-gone']);
      return null;
    }
    return new Splice(this, client, host, ended);
  }

  /** Stops the timer. Splices are their owner's to close. */
  stop(): void {
    this.#clock.clearTimeout(this.#sweep);
    this.#sweep = undefined;
  }

  forward(flow: Flow, data: ArrayBuffer, isBinary: boolean): void {
    if (flow.stopped) return;
    // Outgoing backpressure of the source, or a look, has let it read: hold it again.
    if (flow.paused) flow.pause(this.#clock.now());
    const length = data.byteLength;
    if (!this.#admit(flow, length)) return;
    this.#metrics.forwarded(flow.from, length);
    this.#scheduleTurn();
    if (length > DIRECT_BYTES) {
      this.#flush(flow);
      if (!flow.stopped) this.#sendDirect(flow, data, isBinary);
      return;
    }
    if (!this.#outbox.hasRoom(length)) this.#flushAll();
    if (!flow.stopped) this.#outbox.add(flow, data, isBinary);
  }

  /** The target of `flow` has taken some of what waits. */
  drained(flow: Flow): void {
    this.#settle(flow, 0);
  }

  peerClosed(splice: Splice, side: SpliceSide, trigger: SpliceTrigger): void {
    this.#forget(splice.flowTo(side));
    this.end(splice, trigger, REASONS['peer-gone']);
  }

  /** Ends a splice; of one that is only flushing any more, cuts short the flushing. */
  end(splice: Splice, trigger: SpliceTrigger, reason: CloseReason, manner?: Manner): void {
    const flows = [splice.toClient, splice.toHost];
    if (!splice.markEnded(trigger)) {
      if (trigger === 'external')
        for (const flow of flows) if (flow.closeAfter !== null) this.#closeTarget(flow, reason);
      return;
    }
    for (const flow of flows) {
      flow.stopped = true;
      if (flow.paused) flow.release();
      if (isClosed(flow.target)) this.#forget(flow);
      else {
        this.#outbox.flush(flow);
        this.#budget.set(flow, flow.target.getBufferedAmount());
      }
    }
    this.#metrics.closed(trigger);
    const how = manner ?? (trigger === 'external' || trigger === 'wedged' ? 'now' : 'after-queue');
    for (const flow of flows) {
      if (how === 'after-queue' && flow.buffered > 0) this.#closeWhenDrained(flow, reason);
      else this.#closeTarget(flow, reason);
    }
    splice.tellEnded(trigger);
  }

  #closeWhenDrained(flow: Flow, reason: CloseReason): void {
    flow.closeAfter = reason;
    flow.progressAt = this.#clock.now();
    this.#scheduleSweep();
  }

  #closeTarget(flow: Flow, reason: CloseReason): void {
    this.#forget(flow);
    flow.splice.peer(flow.from === 'client' ? 'host' : 'client').close(reason);
  }

  #forget(flow: Flow): void {
    this.#outbox.drop(flow);
    this.#budget.set(flow, 0);
    flow.closeAfter = null;
  }

  /** False, and the splice ended, if the frame would pass a bound. */
  #admit(flow: Flow, length: number): boolean {
    if (flow.buffered > 0 && flow.buffered + flow.pending + length > this.#queueBytes) {
      this.#settle(flow, 0);
      if (flow.stopped) return false;
      if (flow.buffered + flow.pending + length > this.#queueBytes) {
        this.end(flow.splice, 'queue-limit', REASONS['queue-limit']);
        return false;
      }
    }
    while (this.#budget.total + length > LIMITS.processQueueBytes) {
      const longest = this.#budget.longest();
      if (longest === undefined) break;
      // The memory is wanted now: whoever has not taken the queue within a second is cut off.
      if (longest.closeAfter !== null) this.#closeTarget(longest, REASONS['queue-limit']);
      else this.end(longest.splice, 'queue-limit', REASONS['queue-limit'], 'now');
    }
    return !flow.stopped;
  }

  #sendDirect(flow: Flow, data: ArrayBuffer, isBinary: boolean): void {
    const answer = flow.target.send(data, isBinary);
    if (answer === SEND_REFUSED) this.#refused(flow);
    else if (answer === 0 || flow.buffered > 0) this.#settle(flow, data.byteLength);
  }

  #flush(flow: Flow): void {
    const { pending } = flow;
    if (pending === 0 && flow.first < 0) return;
    if (this.#outbox.flush(flow)) this.#settle(flow, pending);
    else this.#refused(flow);
  }

  // A gap would follow: the target's buffer is over uWebSockets.js's own limit, far above ours.
  #refused(flow: Flow): void {
    this.end(flow.splice, 'queue-limit', REASONS['queue-limit'], 'now');
  }

  /** Takes note of what waits in the target after `added` bytes went its way. */
  #settle(flow: Flow, added: number): void {
    if (flow.stopped && flow.closeAfter === null) return;
    const before = flow.buffered;
    const now = flow.target.getBufferedAmount();
    if (before === 0 && now === 0) return;
    this.#budget.set(flow, now);
    if (before === 0 || now < before + added) flow.progressAt = this.#clock.now();
    if (now > 0) this.#scheduleSweep();
    if (flow.stopped) {
      if (now === 0 && flow.closeAfter !== null) this.#closeTarget(flow, flow.closeAfter);
    } else if (flow.paused) {
      if (now < LIMITS.spliceLowWaterBytes) flow.resume();
    } else if (this.#pausing && now > LIMITS.spliceHighWaterBytes) {
      flow.pause(this.#clock.now());
      this.#metrics.paused();
    }
  }

  #scheduleTurn(): void {
    if (this.#turnScheduled) return;
    this.#turnScheduled = true;
    setImmediate(this.#turn);
  }

  #turn = (): void => {
    this.#turnScheduled = false;
    this.#flushAll();
    this.#metrics.publish();
  };

  #flushAll(): void {
    this.#outbox.flushAll((flow) => this.#flush(flow));
  }

  #scheduleSweep(): void {
    this.#sweep ??= this.#clock.setTimeout(() => {
      this.#sweep = undefined;
      for (const flow of [...this.#budget.waiting]) this.#examine(flow);
      if (this.#budget.waiting.size > 0) this.#scheduleSweep();
    }, SWEEP_MS);
  }

  #examine(flow: Flow): void {
    this.#settle(flow, 0);
    const now = this.#clock.now();
    if (flow.buffered > 0 && now - flow.progressAt >= PROBE_AFTER_MS) this.#probe(flow);
    if (flow.buffered === 0) return;
    if (now - flow.progressAt >= LIMITS.spliceWedgedMs) {
      if (flow.closeAfter !== null) this.#closeTarget(flow, REASONS.wedged);
      else this.end(flow.splice, 'wedged', REASONS.wedged);
    } else if (flow.paused && now - flow.lookedAt >= LOOK_EVERY_MS && flow.buffered <= LOOK_BELOW_BYTES) flow.look(now);
  }

  /** A send makes uWebSockets.js offer the kernel all that waits; a ping is the one that no application sees. */
  #probe(flow: Flow): void {
    flow.target.ping();
    this.#settle(flow, PING_FRAME_BYTES);
  }
}

function isReady(peer: SplicePeer): peer is SplicePeer & { raw: Socket } {
  return peer.open && peer.raw !== null;
}
