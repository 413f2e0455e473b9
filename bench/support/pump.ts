import { randomBytes } from 'node:crypto';
import { clientFrame, serverFrameBytes } from './frames.ts';
import type { RawPair } from './splice-servers.ts';

/**
 * Keeps `window` messages of `bytes` on their way through each pair, phone to host, for `seconds`; how many arrived a second.
 */
export async function pump(pairs: readonly RawPair[], bytes: number, window: number, seconds: number): Promise<number> {
  const batch = Buffer.concat(Array.from({ length: window }, () => clientFrame(randomBytes(bytes))));
  const batchReceived = serverFrameBytes(bytes) * window;
  let messages = 0;
  let stopping = false;
  const start = performance.now();
  const timer = setTimeout(() => {
    stopping = true;
  }, seconds * 1_000);
  await Promise.all(
    pairs.map(
      ({ client, host }) =>
        new Promise<void>((resolve) => {
          let received = 0;
          const onData = (data: Buffer) => {
            received += data.length;
            while (received >= batchReceived) {
              received -= batchReceived;
              messages += window;
              if (stopping) {
                host.off('data', onData);
                resolve();
                return;
              }
              client.write(batch);
            }
          };
          host.on('data', onData);
          client.write(batch);
        }),
    ),
  );
  clearTimeout(timer);
  return messages / ((performance.now() - start) / 1_000);
}

/** One message at a time, host to phone; the time of each in microseconds. */
export async function roundTrips({ client, host }: RawPair, bytes: number, count: number): Promise<number[]> {
  const there = clientFrame(randomBytes(bytes));
  const received = serverFrameBytes(bytes);
  const arrival = (socket: RawPair['client']) =>
    new Promise<void>((resolve) => {
      let got = 0;
      const onData = (data: Buffer) => {
        got += data.length;
        if (got < received) return;
        socket.off('data', onData);
        resolve();
      };
      socket.on('data', onData);
    });
  const times: number[] = [];
  for (let i = 0; i < count; i++) {
    const start = performance.now();
    const atClient = arrival(client);
    host.write(there);
    await atClient;
    const atHost = arrival(host);
    client.write(there);
    await atHost;
    times.push((performance.now() - start) * 1_000);
  }
  return times;
}
