import { openCellPair, placeHost, seatHost } from './support/bench-host.ts';
import { pump, roundTrips } from './support/pump.ts';
import { startRealRelay } from './support/real-relay.ts';
import type { ServerProcess } from './support/server-process.ts';
import { openPair, type RawPair, SPLICE_KINDS, type SpliceKind, startSpliceServer } from './support/splice-servers.ts';
import { median, percentile } from './support/stats.ts';
import type { Bench, Table } from './table.ts';

const PAIRS = 16;
const ROUNDS = 7;
const SECONDS = 1;
const ROUND_TRIPS = 3_000;
/** Bytes, and how many messages of a pair are on their way at once. */
const SIZES = [
  [128, 16],
  [1_024, 16],
  [16_384, 4],
] as const;

/** The whole process, with admission, database and all; `relay` is its splice alone, wired the same way. */
const WHOLE = 'relay, whole process';
const PAIRS_OF_A_HOST = 8;
const HARD_CAP = 600;
type Name = SpliceKind | typeof WHOLE;
const NAMES: readonly Name[] = [...SPLICE_KINDS, WHOLE];

interface Contender {
  kind: Name;
  server: ServerProcess;
  pairs: RawPair[];
}

interface Rate {
  messages: number;
  perCpuSecond: number;
}

export const bench: Bench = {
  about: 'messages a second through the splice, and round trips, against a bare uWS splice and ws',
  async run() {
    const contenders = await Promise.all([...SPLICE_KINDS.map(start), startWhole()]);
    try {
      const rates = await throughput(contenders);
      const trips = await roundTripTable(contenders);
      return [rates, trips];
    } finally {
      for (const { server } of contenders) await server.stop();
    }
  },
};

async function start(kind: SpliceKind): Promise<Contender> {
  const server = await startSpliceServer(kind);
  const pairs: RawPair[] = [];
  for (let i = 0; i < PAIRS; i++) pairs.push(await openPair(server));
  return { kind, server, pairs };
}

async function startWhole(): Promise<Contender> {
  const server = await startRealRelay(HARD_CAP);
  const pairs: RawPair[] = [];
  while (pairs.length < PAIRS) {
    const host = await seatHost(await placeHost(server));
    for (let i = 0; i < PAIRS_OF_A_HOST; i++) pairs.push(await openCellPair(server, host));
  }
  return { kind: WHOLE, server, pairs };
}

async function throughput(contenders: readonly Contender[]): Promise<Table> {
  const rows: (string | number)[][] = [];
  for (const [bytes, window] of SIZES) {
    const rates = new Map<Name, Rate[]>(contenders.map(({ kind }) => [kind, []]));
    for (const { pairs } of contenders) await pump(pairs, bytes, window, 0.3);
    // Round by round, so that a neighbour's load falls on all of them.
    for (let round = 0; round < ROUNDS; round++) {
      for (const contender of contenders) rates.get(contender.kind)?.push(await measure(contender, bytes, window));
    }
    const of = (kind: Name) => rates.get(kind) ?? [];
    for (const kind of NAMES) {
      rows.push([
        `${bytes} B`,
        kind,
        median(of(kind).map(({ messages }) => messages)),
        median(of(kind).map(({ messages }) => (messages * bytes) / 1e6)),
        median(of(kind).map(({ perCpuSecond }) => perCpuSecond)),
        median(of('relay').map(({ messages }, i) => messages / (of(kind)[i]?.messages ?? Number.NaN))),
        median(of('relay').map(({ perCpuSecond }, i) => perCpuSecond / (of(kind)[i]?.perCpuSecond ?? Number.NaN))),
      ]);
    }
  }
  return {
    title: `Splice: ${PAIRS} pairs, 16 messages on their way in each (4 at 16 KiB)`,
    columns: ['size', 'splice', 'msg/s', 'MB/s', 'msg per CPU second', 'relay ÷ this', 'per CPU second'],
    rows,
    notes: [
      `Medians of ${ROUNDS} rounds of ${SECONDS} s; the ratio is the median of each round's own.`,
      'Wanted: relay ÷ bare uWS ≥ 0.9, relay ÷ plain ws > 1 at every size.',
    ],
  };
}

async function measure({ server, pairs }: Contender, bytes: number, window: number): Promise<Rate> {
  const before = await server.usage();
  const start = performance.now();
  const messages = await pump(pairs, bytes, window, SECONDS);
  const seconds = (performance.now() - start) / 1_000;
  const cpuSeconds = ((await server.usage()).cpuMicros - before.cpuMicros) / 1e6;
  return { messages, perCpuSecond: (messages * seconds) / cpuSeconds };
}

async function roundTripTable(contenders: readonly Contender[]): Promise<Table> {
  const times = new Map<Name, number[]>(contenders.map(({ kind }) => [kind, []]));
  for (let round = 0; round < ROUNDS; round++) {
    for (const { kind, pairs } of contenders) {
      times.get(kind)?.push(...(await roundTrips(pairs[0] as RawPair, 128, ROUND_TRIPS / ROUNDS)));
    }
  }
  return {
    title: 'Splice: round trip host → phone → host, 128 B, one at a time',
    columns: ['splice', 'p50 µs', 'p99 µs'],
    rows: NAMES.map((kind) => {
      const all = times.get(kind) ?? [];
      return [kind, percentile(all, 0.5), percentile(all, 0.99)];
    }),
  };
}
