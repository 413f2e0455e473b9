import type { CellSpec, Fleet, Node } from './fleet.ts';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.ts';

/** A cell whose machine can be taken off the network: hosts and directors reach it by one link, it reaches Postgres by another. */
export interface CutOffCell {
  node: Node;
  /** Where hosts and directors find it. */
  address: string;
  link: TcpProxy;
  store: TcpProxy;
  /** As if the machine had lost its power: nobody is told. */
  die(): void;
  revive(): void;
  stop(): Promise<void>;
}

/** Registers it and prepares its process, which the caller starts. */
export async function addCutOffCell(fleet: Fleet, spec: CellSpec = {}): Promise<CutOffCell> {
  const node = await fleet.addCell(spec);
  const link = await startTcpProxy({ host: '127.0.0.1', port: Number(new URL(node.origin).port) });
  const address = link.through(node.origin).replace(/\/$/, '');
  const database = new URL(String(node.env.DATABASE_URL));
  const store = await startTcpProxy({ host: database.hostname, port: Number(database.port || 5432) });
  Object.assign(node.env, {
    ORCA_RELAY_CELL_URL: address,
    ORCA_RELAY_PUBLIC_URL: address,
    DATABASE_URL: store.through(database.href),
  });
  const { capacity = 900, limit, region = 'us-central1' } = spec;
  const [row] = await fleet.database.query('select relay_v1.register_cell($1, $2, $3, $4, $5, $6) as answer', [
    node.id,
    address,
    region,
    capacity,
    limit?.hardCap ?? null,
    limit?.unobservedBound ?? null,
  ]);
  if (row?.answer !== 'ok') throw new Error(`register_cell answered ${row?.answer}`);
  return {
    node,
    address,
    link,
    store,
    die() {
      link.refuse();
      store.refuse();
    },
    revive() {
      link.restore();
      store.restore();
    },
    async stop() {
      await Promise.all([link.stop(), store.stop()]);
    },
  };
}
