import { type Placed, placeHost, seatHost } from './support/bench-host.ts';
import { openRaw } from './support/raw-socket.ts';
import { startRealRelay } from './support/real-relay.ts';
import type { ServerProcess } from './support/server-process.ts';
import { startSpliceServer } from './support/splice-servers.ts';
import { median } from './support/stats.ts';
import type { Bench } from './table.ts';

const ROUNDS = 3;
const CONNECTS = 300;
const AT_ONCE = 16;

interface Rate {
  perSecond: number;
  /** Of the server's process alone. */
  cpuMsEach: number;
}

export const bench: Bench = {
  about: 'hosts a second from dial to seat (upgrade, token, key proof, lease), against a bare uWS upgrade',
  async run() {
    const relay = await startRealRelay(3_000);
    const bare = await startSpliceServer('bare uWS, batched');
    const seated: Rate[] = [];
    const upgraded: Rate[] = [];
    try {
      for (let round = 0; round < ROUNDS; round++) {
        const placed: Placed[] = [];
        for (let i = 0; i < CONNECTS; i++) placed.push(await placeHost(relay));
        seated.push(await measure(relay, (i) => seatHost(placed[i] as Placed)));
        upgraded.push(await measure(bare, (i) => openRaw(bare.port, `/host/r${round}-${i}`)));
      }
    } finally {
      bare.stop();
      await relay.stop();
    }
    const row = (name: string, rates: Rate[]) => [
      name,
      median(rates.map(({ perSecond }) => perSecond)),
      median(rates.map(({ cpuMsEach }) => cpuMsEach)),
    ];
    const ratio = median(seated.map(({ perSecond }, i) => perSecond / (upgraded[i]?.perSecond ?? Number.NaN)));
    return [
      {
        title: `Accept: ${AT_ONCE} at once, from dial to seat`,
        columns: ['what', 'per second', 'server CPU, ms each'],
        rows: [row('host seated', seated), row('bare uWS upgrade', upgraded)],
        notes: [
          `Seated ÷ bare: ${ratio.toFixed(3)}. Both ends of the key proof run on this machine, and Postgres with them.`,
        ],
      },
    ];
  },
};

async function measure(server: ServerProcess, connect: (index: number) => Promise<unknown>): Promise<Rate> {
  const before = await server.usage();
  const start = performance.now();
  let next = 0;
  const lane = async () => {
    while (next < CONNECTS) await connect(next++);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, lane));
  const seconds = (performance.now() - start) / 1_000;
  const cpuMicros = (await server.usage()).cpuMicros - before.cpuMicros;
  return { perSecond: CONNECTS / seconds, cpuMsEach: cpuMicros / 1_000 / CONNECTS };
}
