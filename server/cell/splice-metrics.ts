import type { Metrics } from '../metrics.ts';
import type { SpliceSide, SpliceTrigger } from './splice-triggers.ts';

export interface SpliceMetrics {
  forwarded(from: SpliceSide, bytes: number): void;
  paused(): void;
  closed(trigger: SpliceTrigger): void;
  /** Once a loop turn: a counter with labels costs more than forwarding a small frame does. */
  publish(): void;
}

export function createSpliceMetrics(metrics: Metrics, pausing: boolean, queuedBytes: () => number): SpliceMetrics {
  const bytes = metrics.counter('orca_relay_spliced_bytes_total', 'Payload bytes forwarded', ['from']);
  const frames = metrics.counter('orca_relay_spliced_frames_total', 'Messages forwarded', ['from']);
  const closes = metrics.counter('orca_relay_splice_closes_total', 'Splices ended', ['trigger']);
  const pauses = metrics.counter('orca_relay_splice_pauses_total', 'Times a sender was held back for a slow receiver');
  metrics.gauge('orca_relay_splice_queued_bytes', 'Bytes that wait for slow receivers', [], queuedBytes);
  metrics
    .gauge('orca_relay_splice_pausing', '1 if senders can be held back, 0 if only the bounded queue protects')
    .set(pausing ? 1 : 0);
  const sides = {
    client: { bytes: bytes.labels('client'), frames: frames.labels('client') },
    host: { bytes: bytes.labels('host'), frames: frames.labels('host') },
  };
  const unpublished = { client: { bytes: 0, frames: 0 }, host: { bytes: 0, frames: 0 } };
  const publishSide = (side: SpliceSide) => {
    const sums = unpublished[side];
    if (sums.frames === 0) return;
    sides[side].bytes.inc(sums.bytes);
    sides[side].frames.inc(sums.frames);
    sums.bytes = 0;
    sums.frames = 0;
  };
  return {
    forwarded(from, length) {
      const sums = unpublished[from];
      sums.bytes += length;
      sums.frames += 1;
    },
    paused: () => pauses.inc(),
    closed: (trigger) => closes.inc({ trigger }),
    publish() {
      publishSide('client');
      publishSide('host');
    },
  };
}
