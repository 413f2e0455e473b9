import type { CloseReason } from '../../contract/index.ts';
import { isClosed, pauseReading, resumeReading, type Socket } from '../uws.ts';
import { OutboxQueue } from './outbox.ts';
import type { Splice } from './splice.ts';
import type { SpliceSide } from './splice-triggers.ts';

/**
 * One direction of a splice: from the socket of one peer to that of the other. What waits for a slow target waits in the
 * target socket's own buffer; this keeps what is known of it.
 */
export class Flow extends OutboxQueue {
  readonly splice: Splice;
  readonly from: SpliceSide;
  readonly source: Socket;
  /** Bytes that wait in the target's socket, when last looked at. */
  buffered = 0;
  /** Clock time of the last byte that the target's kernel took while some waited. */
  progressAt = 0;
  /** The source's socket is being held back. It may read all the same for a moment, which is called a look. */
  paused = false;
  lookedAt = 0;
  /** Nothing more is taken from the source. */
  stopped = false;
  /** Set once the splice is over but for what waits here: what the target reads after it. */
  closeAfter: CloseReason | null = null;

  constructor(splice: Splice, from: SpliceSide, source: Socket, target: Socket) {
    super(target);
    this.splice = splice;
    this.from = from;
    this.source = source;
  }

  pause(now: number): void {
    this.paused = true;
    this.lookedAt = now;
    pauseReading(this.source);
  }

  /** Lets a paused source be read until its next message: neither a close nor a lost peer shows while it is paused. */
  look(now: number): void {
    this.lookedAt = now;
    resumeReading(this.source);
  }

  resume(): void {
    this.paused = false;
    resumeReading(this.source);
  }

  /** For a source that may have closed, which must not be touched, nor looked at ever after. */
  release(): void {
    this.paused = false;
    if (!isClosed(this.source)) resumeReading(this.source);
  }
}
