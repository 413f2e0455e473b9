import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

interface Link {
  client: Socket;
  upstream: Socket;
  /** It has sent LISTEN: the doorbell's own connection. */
  listens: boolean;
}

/** Stands between a process and Postgres, and fails the ways a network does. */
export interface TcpProxy {
  /** The same URL, through the proxy. */
  through(url: string): string;
  /** Bytes stop both ways, on connections old and new; nothing closes. */
  stall(): void;
  /** Only the connections that listen for notifications go silent; new ones work. Answers how many there were. */
  stallListeners(): number;
  /** Every connection is cut, and new ones are refused, as by a server that is down. */
  refuse(): void;
  /** Cuts every connection; new ones work. */
  cut(): void;
  /** Bytes flow again, stalled ones first. */
  restore(): void;
  connections(): number;
  stop(): Promise<void>;
}

export async function startTcpProxy(target: { host: string; port: number }): Promise<TcpProxy> {
  const links = new Set<Link>();
  let mode: 'open' | 'stalled' | 'refused' = 'open';

  const cut = () => {
    for (const { client, upstream } of links) {
      client.destroy();
      upstream.destroy();
    }
  };
  const hold = (link: Link) => {
    link.client.pause();
    link.upstream.pause();
  };

  const server = createServer((client) => {
    if (mode === 'refused') {
      client.destroy();
      return;
    }
    const link: Link = { client, upstream: connect(target), listens: false };
    links.add(link);
    for (const [from, to] of [
      [client, link.upstream],
      [link.upstream, client],
    ] as const) {
      from.setNoDelay(true);
      from.on('data', (bytes) => {
        if (from === client && bytes.includes('LISTEN ')) link.listens = true;
        to.write(bytes);
      });
      from.on('error', () => {});
      from.on('close', () => {
        to.destroy();
        links.delete(link);
      });
    }
    if (mode === 'stalled') hold(link);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;

  return {
    through(url) {
      const rewritten = new URL(url);
      rewritten.hostname = '127.0.0.1';
      rewritten.port = String(port);
      return rewritten.href;
    },
    stall() {
      mode = 'stalled';
      for (const link of links) hold(link);
    },
    stallListeners() {
      const listening = [...links].filter(({ listens }) => listens);
      for (const link of listening) hold(link);
      return listening.length;
    },
    refuse() {
      mode = 'refused';
      cut();
    },
    cut,
    restore() {
      mode = 'open';
      for (const { client, upstream } of links) {
        client.resume();
        upstream.resume();
      }
    },
    connections: () => links.size,
    stop: () =>
      new Promise((resolve) => {
        cut();
        server.close(() => resolve());
      }),
  };
}

/** A proxy before the server of a postgres:// URL. */
export function proxyBefore(url: string): Promise<TcpProxy> {
  const { hostname, port } = new URL(url);
  return startTcpProxy({ host: hostname, port: Number(port === '' ? 5432 : port) });
}
