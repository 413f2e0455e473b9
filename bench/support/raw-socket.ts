import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

/** Opens a WebSocket and hands over the bare TCP socket: what a load client measures is the server. */
export async function openRaw(port: number, path: string, headers: Record<string, string> = {}): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  await once(socket, 'connect');
  const lines = [
    `GET ${path} HTTP/1.1`,
    `Host: 127.0.0.1:${port}`,
    'Upgrade: websocket',
    'Connection: Upgrade',
    `Sec-WebSocket-Key: ${randomBytes(16).toString('base64')}`,
    'Sec-WebSocket-Version: 13',
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
  ];
  socket.write(`${lines.join('\r\n')}\r\n\r\n`);
  const [reply] = (await once(socket, 'data')) as [Buffer];
  const end = reply.indexOf('\r\n\r\n');
  if (!reply.toString('latin1', 0, end).startsWith('HTTP/1.1 101')) {
    throw new Error(`upgrade of ${path} refused: ${reply.toString('latin1', 0, 200)}`);
  }
  if (reply.length > end + 4) socket.unshift(reply.subarray(end + 4));
  return socket;
}
