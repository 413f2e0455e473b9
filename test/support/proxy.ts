import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/** One connection to Postgres, known by the application name it gave when it started. */
interface Link {
  name: string;
  client: Socket;
  upstream: Socket;
  muted: boolean;
}

/** Stands between a process and Postgres and fails as networks and servers do, for all connections or for some. */
export interface TcpProxy {
  /** The same URL, by way of the proxy. */
  through(url: string): string;
  /** Bytes vanish both ways and nothing closes: a black hole. New connections still work. */
  swallow(name: RegExp): number;
  /**
   * What the server says vanishes; what the client says arrives. For new connections too, until `open`; with a pattern,
   * only on connections whose client has said something like it since.
   */
  mute(trigger?: RegExp): void;
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
  let trigger: RegExp = /^/;

  const drop = ({ client, upstream }: Link) => {
    client.destroy();
    upstream.destroy();
  };
  const server = createServer((client) => {
    if (mode === 'refuse') {
      client.destroy();
      return;
    }
    const upstream = connect(Number(target.port), target.hostname);
    const link: Link = { name: '', client, upstream, muted: false };
    links.add(link);
    client.on('data', (bytes) => {
      const text = bytes.toString('latin1');
      if (link.name === '') link.name = /application_name\0([^\0]*)\0/.exec(text)?.[1] ?? '';
      if (mode === 'mute' && trigger.test(text)) link.muted = true;
      upstream.write(bytes);
    });
    const withoutNotifications = notificationFilter();
    upstream.on('data', (bytes) => {
      const audible = withoutNotifications(bytes, mode === 'deaf');
      if (!link.muted) client.write(audible);
    });
    for (const end of [client, upstream]) {
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
    mute: (said = /^/) => {
      mode = 'mute';
      trigger = said;
      for (const link of links) link.muted = said.source === '^';
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
      for (const link of links) link.muted = false;
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
