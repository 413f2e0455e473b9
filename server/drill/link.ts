import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/** Who is at the near end of a connection to a cell: its first request tells. */
export type LinkUser = 'director' | 'client';

/** A wire between processes of a drill that can be cut: bytes stop both ways and nothing closes, as when packets are lost. */
export interface Link {
  port: number;
  /** New connections are taken, and silent too. */
  cut(users: readonly LinkUser[]): void;
  /** Bytes flow again, the held ones first. */
  mend(): void;
  /** From now on bytes of both ways are so much later, in order. */
  delay(ms: number): void;
  /** Breaks that many connections of clients. */
  reset(count: number): void;
  stop(): Promise<void>;
}

interface Wire {
  near: Socket;
  far: Socket;
  user: LinkUser;
}

const DIRECTORS_PATHS = /^\w+ \/(v1\/admin|internal)\//;

/** @param target a port of loopback, where nobody need listen yet */
export async function openLink(target: number): Promise<Link> {
  const wires = new Set<Wire>();
  /** That have not said who they are. */
  const strangers = new Set<Socket>();
  let cut: readonly LinkUser[] = [];
  let delayMs = 0;
  const isSilent = ({ user }: Wire) => cut.includes(user);
  const settle = (wire: Wire) => {
    for (const end of [wire.near, wire.far]) isSilent(wire) ? end.pause() : end.resume();
  };
  const server = createServer((near) => {
    // The first bytes say who it is; until then nothing is passed on.
    strangers.add(near);
    near.once('close', () => strangers.delete(near));
    near.once('data', (first) => {
      strangers.delete(near);
      const user = DIRECTORS_PATHS.test(first.toString('latin1', 0, 64)) ? 'director' : 'client';
      const far = connect(target, '127.0.0.1');
      const wire: Wire = { near, far, user };
      wires.add(wire);
      const state = { delayMs: () => delayMs, isSilent: () => isSilent(wire) };
      pass(near, far, state);
      pass(far, near, state);
      near.unshift(first);
      for (const end of [near, far]) {
        end.on('close', () => {
          wires.delete(wire);
          near.destroy();
          far.destroy();
        });
      }
      settle(wire);
    });
    near.on('error', () => near.destroy());
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    cut(users) {
      cut = users;
      for (const wire of wires) settle(wire);
    },
    mend() {
      cut = [];
      for (const wire of wires) settle(wire);
    },
    delay(ms) {
      delayMs = ms;
    },
    reset(count) {
      for (const { near } of [...wires].filter(({ user }) => user === 'client').slice(0, count)) near.destroy();
    },
    stop: () =>
      new Promise((resolve) => {
        for (const socket of [...strangers, ...[...wires].flatMap(({ near, far }) => [near, far])]) socket.destroy();
        server.close(() => resolve());
      }),
  };
}

function pass(from: Socket, to: Socket, state: { delayMs(): number; isSilent(): boolean }): void {
  from.setNoDelay(true);
  from.on('error', () => from.destroy());
  /** When the last bytes are due: later ones come no sooner. */
  let due = 0;
  from.on('data', (bytes) => {
    due = Math.max(due, performance.now() + state.delayMs());
    const waitMs = due - performance.now();
    if (waitMs >= 1) setTimeout(() => to.write(bytes), waitMs);
    else if (!to.write(bytes)) {
      from.pause();
      to.once('drain', () => {
        if (!state.isSilent()) from.resume();
      });
    }
  });
}
