import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { type SequenceReader, sequencedFrame, sequenceReader, serverSequencedFrame } from './support/sequence.ts';
import { openPair, startSpliceServer } from './support/splice-servers.ts';
import type { Bench, Table } from './table.ts';

const MIB = 1_048_576;
const READ_BYTES_PER_SECOND = 4 * MIB;
const TOTAL_BYTES = 256 * MIB;
const FRAME_BYTES = 32_768;
const FRAMES = TOTAL_BYTES / FRAME_BYTES;
/** A shipped desktop stops writing once its socket holds so much. */
const HOST_BUFFER_BYTES = 8 * MIB;

interface Run {
  seconds: number;
  ordered: boolean;
  /** Of a frame sent when the host's own buffer had just emptied. */
  lastFrameSeconds: number;
  mostQueuedBytes: number;
  mostInHostBytes: number;
}

export const bench: Bench = {
  about: '256 MiB from a full-speed host to a phone that reads 4 MiB/s',
  async run() {
    const [relayed, alone] = await Promise.all([throughRelay(), withoutRelay()]);
    const row = (name: string, run: Run) => [
      name,
      run.seconds,
      TOTAL_BYTES / MIB / run.seconds,
      run.ordered ? 'yes' : 'NO',
      run.mostQueuedBytes / MIB,
      run.mostInHostBytes / MIB,
      run.lastFrameSeconds,
    ];
    const table: Table = {
      title: '256 MiB from a full-speed host to a phone that reads 4 MiB/s',
      columns: [
        'way',
        's',
        'MiB/s',
        'whole, in order',
        'most queued in relay, MiB',
        'most in host, MiB',
        'last frame, s',
      ],
      rows: [row('through the relay', relayed), row('phone alone, plain TCP', alone)],
      notes: [
        `Relay ÷ alone: ${(alone.seconds / relayed.seconds).toFixed(3)} (wanted ≥ 0.95); wanted ≤ 2 MiB queued, last frame ≤ 3 s.`,
        'The last frame is sent when the host’s own buffer has just emptied: what it waits for are the kernels and the relay.',
      ],
    };
    return [table];
  },
};

async function throughRelay(): Promise<Run> {
  const server = await startSpliceServer('relay');
  const { client, host } = await openPair(server);
  let mostQueuedBytes = 0;
  const watch = setInterval(async () => {
    mostQueuedBytes = Math.max(mostQueuedBytes, (await server.usage()).queuedBytes);
  }, 50);
  try {
    return { ...(await transfer(host, client, sequencedFrame)), mostQueuedBytes };
  } finally {
    clearInterval(watch);
    server.stop();
  }
}

async function withoutRelay(): Promise<Run> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const phone = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const [host] = (await once(server, 'connection')) as [Socket];
  try {
    return { ...(await transfer(host, phone, serverSequencedFrame)), mostQueuedBytes: 0 };
  } finally {
    server.close();
    phone.destroy();
    host.destroy();
  }
}

type FrameMaker = (index: number, payloadBytes: number) => Buffer;

async function transfer(host: Socket, phone: Socket, frame: FrameMaker): Promise<Omit<Run, 'mostQueuedBytes'>> {
  const reader = sequenceReader(FRAME_BYTES);
  const start = performance.now();
  limit(phone, reader, start);
  let mostInHostBytes = 0;
  for (let i = 0; i < FRAMES; i++) {
    host.write(frame(i, FRAME_BYTES));
    mostInHostBytes = Math.max(mostInHostBytes, host.writableLength);
    while (host.writableLength > HOST_BUFFER_BYTES) await sleep(5);
  }
  while (host.writableLength > 0) await sleep(5);
  const sentLast = performance.now();
  host.write(frame(FRAMES, FRAME_BYTES));
  while (reader.frames < FRAMES) await sleep(2);
  const seconds = (performance.now() - start) / 1_000;
  while (reader.frames <= FRAMES) await sleep(2);
  const lastFrameSeconds = (performance.now() - sentLast) / 1_000;
  return { seconds, ordered: reader.ordered, lastFrameSeconds, mostInHostBytes };
}

function limit(phone: Socket, reader: SequenceReader, start: number): void {
  let bytes = 0;
  phone.on('data', (data) => {
    bytes += data.length;
    reader.read(data);
    const aheadMs = (bytes / READ_BYTES_PER_SECOND) * 1_000 - (performance.now() - start);
    if (aheadMs < 2) return;
    phone.pause();
    setTimeout(() => phone.resume(), aheadMs);
  });
}
