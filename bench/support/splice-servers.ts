import type { Socket } from 'node:net';
import { openRaw } from './raw-socket.ts';
import { type ServerProcess, startServer } from './server-process.ts';

/** The relay's splice and what it is measured against. */
export const SPLICE_KINDS = ['relay', 'bare uWS, batched', 'ws, plain', 'ws, corked'] as const;
export type SpliceKind = (typeof SPLICE_KINDS)[number];

const COMMANDS: Record<SpliceKind, [name: string, args: string[]]> = {
  relay: ['relay-splice', []],
  'bare uWS, batched': ['bare-uws', []],
  'ws, plain': ['ws-splice', []],
  'ws, corked': ['ws-splice', ['corked']],
};

export function startSpliceServer(kind: SpliceKind): Promise<ServerProcess> {
  return startServer(...COMMANDS[kind]);
}

export interface RawPair {
  client: Socket;
  host: Socket;
}

let names = 0;

export async function openPair(server: ServerProcess): Promise<RawPair> {
  const name = `p${names++}`;
  const host = await openRaw(server.port, `/host/${name}`);
  const client = await openRaw(server.port, `/client/${name}`);
  return { client, host };
}
