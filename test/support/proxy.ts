import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/** One connection to Postgres, known by the application name it gave when it started. */
interface Link {
  name: string;
  client: Socket;
  upstream: Socket;
}

/** Stands between a process and Postgres and fails as networks and servers do, for all connections or for some. */
export interface TcpProxy {
  /** The same URL, by way of the proxy. */
  through(url: string): string;
  /** Bytes vanish both ways and nothing closes: a black hole. New connections still work. */
  swallow(name: RegExp): number;
  /** What the server says vanishes; what the client says arrives. For new connections too, until `open`. */
  mute(): void;
  /** Notifications vanish, everything else passes, as through a pooler that lends out sessions; until `open`. */
  deafen(): void;
  /** Cuts connections; new ones still work. */
  cut(name?: RegExp): number;
  /** Cuts all and takes none: a server that is down. */
  refuse(): void;
  /** New connections work again. */
  open(): void;
  /** Names of the connections there are. */
  names(): string[];
  stop(): Promise<void>;
}

export async function startProxy(serverUrl: string): Promise<TcpProxy> {
  const target = new URL(serverUrl);
  const links = new Set<Link>();
  let mode: 'open' | 'mute' | 'deaf' | 'refuse' = 'open';

  const drop = ({ client, upstream }: Link) => {
    client.destroy();
    upstream.destroy();
  };
  const server = createServer((client) => {
    if (mode === 'refuse') {
      client.destroy();
      return;
    }
    const link: Link = { name: '', client, upstream: connect(Number(target.port), target.hostname) };
    links.add(link);
    client.on('data', (bytes) => {
      if (link.name === '') link.name = /application_name\0([^\0]*)\0/.exec(bytes.toString('latin1'))?.[1] ?? '';
      link.upstream.write(bytes);
    });
    const withoutNotifications = notificationFilter();
    link.upstream.on('data', (bytes) => {
      const audible = withoutNotifications(bytes, mode === 'deaf');
      if (mode !== 'mute') client.write(audible);
    });
    for (const end of [client, link.upstream]) {
      end.on('error', () => undefined);
      end.on('close', () => {
        links.delete(link);
        drop(link);
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;

  const each = (name: RegExp, act: (link: Link) => void): number => {
    const chosen = [...links].filter((link) => name.test(link.name));
    for (const link of chosen) act(link);
    return chosen.length;
  };
  const cut = (name = /^/) => each(name, drop);

  return {
    through(url) {
      const through = new URL(url);
      through.hostname = '127.0.0.1';
      through.port = String(port);
      return through.href;
    },
    swallow: (name) =>
      each(name, ({ client, upstream }) => {
        client.removeAllListeners('data').resume();
        upstream.removeAllListeners('data').resume();
      }),
    mute: () => {
      mode = 'mute';
    },
    deafen: () => {
      mode = 'deaf';
    },
    cut,
    refuse: () => {
      mode = 'refuse';
      cut();
    },
    open: () => {
      mode = 'open';
    },
    names: () => [...links].map(({ name }) => name),
    stop: () =>
      new Promise((resolve) => {
        for (const link of links) drop(link);
        server.close(() => resolve());
      }),
  };
}

const NOTIFICATION = 'A'.charCodeAt(0);

/** Passes on whole messages of the server; without notifications where asked to. */
function notificationFilter(): (bytes: Buffer, drop: boolean) => Buffer {
  let rest: Buffer = Buffer.alloc(0);
  return (bytes, drop) => {
    rest = Buffer.concat([rest, bytes]);
    const passed: Buffer[] = [];
    while (rest.length >= 5) {
      const end = 1 + rest.readUInt32BE(1);
      if (rest.length < end) break;
      if (!drop || rest[0] !== NOTIFICATION) passed.push(rest.subarray(0, end));
      rest = rest.subarray(end);
    }
    return Buffer.concat(passed);
  };
}
