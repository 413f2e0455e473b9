import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { Fleet, type FleetDatabase, type Node } from '../acceptance/support/fleet.ts';
import { type HostIdentity, newIdentity } from '../acceptance/support/identity.ts';
import { askAssign, type Grant } from '../acceptance/support/parts.ts';
import type { RawHost } from '../acceptance/support/raw-host.ts';
import { toDb, toReserve } from '../acceptance/support/reserve-mode.ts';
import { readFull } from '../acceptance/support/seat-feed.ts';
import { proxyBefore, type TcpProxy } from '../acceptance/support/tcp-proxy.ts';
import { until } from '../acceptance/support/wait.ts';
import { freshDatabase } from '../support/database.ts';

let database: FleetDatabase;
let proxy: TcpProxy;
let fleet: Fleet;
beforeAll(async () => {
  database = await freshDatabase();
  proxy = await proxyBefore(database.url);
  const limit = { hardCap: 600, unobservedBound: 60 };
  const cells = [{ limit }, { limit }, { limit }];
  fleet = await Fleet.start({ database, cells, directors: 2, rewriteUrl: (url) => proxy.through(url) });
  for (const { id } of fleet.cells) await toReserve(fleet, id, { intakePerSec: 1_000 });
});
afterAll(async () => {
  try {
    await fleet?.stop();
  } finally {
    await proxy?.stop();
    await database?.drop();
  }
});
afterEach(() => proxy.restore());

const STEPS = [
  'reconnect',
  'lose',
  'stay-away',
  'restart-cell',
  'stall',
  'refuse',
  'restore',
  'to-db',
  'to-reserve',
  'wait',
] as const;
interface Step {
  step: (typeof STEPS)[number];
  who: number;
}
const HOSTS = 4;

/** A desktop that follows what it is told: it holds one control, and asks one director or the other. */
class Desktop {
  readonly identity: HostIdentity = newIdentity();
  readonly epochs: number[] = [];
  #host: RawHost | null = null;
  #grant: Grant | null = null;

  get connected(): boolean {
    return this.#host?.peer.isOpen === true;
  }

  get grant(): Grant | null {
    return this.#grant;
  }

  lose(): void {
    this.#host?.drop();
  }

  /** One attempt: true once it is seated. */
  async connect(director: Node): Promise<boolean> {
    if (this.connected) return true;
    const token = await fleet.token(this.identity);
    const asked = await askAssign(director.origin, token, this.identity, { reconnect: this.#grant !== null });
    if (asked.status !== 200) {
      expect(asked.status, JSON.stringify(asked.body)).toBe(503);
      return false;
    }
    const grant = asked.body as unknown as Grant;
    this.#grant = grant;
    try {
      this.#host = await fleet.dial(this.identity, grant, { token });
    } catch {
      return false;
    }
    this.epochs.push(grant.assignmentEpoch);
    return true;
  }
}

class Run {
  readonly desktops = Array.from({ length: HOSTS }, () => new Desktop());
  #turn = 0;
  #away = false;

  /** The other director each time. */
  get director(): Node {
    this.#turn += 1;
    return fleet.directors[this.#turn % fleet.directors.length] as Node;
  }

  async perform({ step, who }: Step): Promise<void> {
    const desktop = this.desktops[who % HOSTS] as Desktop;
    const cell = fleet.cell(who % fleet.cells.length);
    if (step === 'lose') desktop.lose();
    else if (step === 'wait') await fleet.advance(8_000);
    else if (step === 'stay-away') {
      desktop.lose();
      await fleet.advance(40_000);
    } else if (step === 'reconnect') await this.#attempts(desktop, 2);
    else if (step === 'stall' || step === 'refuse') this.#takeDatabase(step);
    else if (step === 'restore') await this.restore();
    else if (!this.#away) await this.#operate(step, cell);
  }

  #takeDatabase(how: 'stall' | 'refuse'): void {
    this.#away = true;
    proxy[how]();
  }

  async restore(): Promise<void> {
    proxy.restore();
    if (!this.#away) return;
    this.#away = false;
    await fleet.advance(5_000);
  }

  async #operate(step: Step['step'], cell: Node): Promise<void> {
    if (step === 'restart-cell') {
      await cell.stop();
      await cell.start();
      await fleet.heard([cell]);
    } else if (step === 'to-db') await toDb(fleet, cell.id);
    else await toReserve(fleet, cell.id, { intakePerSec: 1_000 });
  }

  async #attempts(desktop: Desktop, count: number): Promise<void> {
    for (let left = count; left > 0; left -= 1) {
      if (await desktop.connect(this.director)) return;
      await fleet.advance(6_000);
    }
  }

  /** All is well again, and everybody who wants to be connected is. */
  async settle(): Promise<void> {
    await this.restore();
    for (const desktop of this.desktops) {
      for (let left = 20; left > 0 && !(await desktop.connect(this.director)); left -= 1) await fleet.advance(6_000);
      expect(desktop.connected).toBe(true);
    }
  }
}

async function rows(): Promise<Map<string, { cell_id: unknown; epoch: unknown }>> {
  const found = await database.query('select relay_host_id, cell_id, epoch::int from relay.assignment');
  return new Map(found.map(({ relay_host_id, cell_id, epoch }) => [String(relay_host_id), { cell_id, epoch }]));
}

/** Each host has one seat that takes phones, the one it is connected to, and its row says so. */
async function agrees({ desktops }: Run): Promise<void> {
  const seats = new Map<string, { cell_id: string; epoch: number }[]>();
  for (const cell of fleet.cells) {
    const page = await readFull(fleet, cell);
    expect(page.counts.seats).toBe(page.full.length);
    for (const { relayHostId, epoch, state } of page.full) {
      if (state !== 'active') continue;
      seats.set(relayHostId, [...(seats.get(relayHostId) ?? []), { cell_id: cell.id, epoch }]);
    }
  }
  const written = await rows();
  for (const { identity, grant, epochs } of desktops) {
    const held = { cell_id: fleet.cellAt(String(grant?.cellUrl)).id, epoch: grant?.assignmentEpoch };
    expect(seats.get(identity.relayHostId), `seats of ${identity.relayHostId}`).toEqual([held]);
    expect(written.get(identity.relayHostId), `row of ${identity.relayHostId}`).toEqual(held);
    expect(epochs, 'P1').toEqual([...epochs].sort((a, b) => a - b));
  }
}

test('P1, P2, 88: whatever happens to a fleet in reserve mode, each host ends on one seat, and its row names it', async () => {
  const steps = fc.array(fc.record<Step>({ step: fc.constantFrom(...STEPS), who: fc.nat(11) }), {
    minLength: 10,
    maxLength: 20,
  });
  await fc.assert(
    fc.asyncProperty(steps, async (history) => {
      const run = new Run();
      for (const desktop of run.desktops) await desktop.connect(run.director);
      for (const step of history) await run.perform(step);
      await run.settle();
      await until(
        'seats, hosts and rows to agree',
        () =>
          agrees(run).then(
            () => null,
            (error: Error) => error.message,
          ),
        (difference) => difference === null,
      );
      for (const desktop of run.desktops) desktop.lose();
    }),
    { numRuns: 3, endOnFailure: true },
  );
  expect(fleet.problems()).toEqual([]);
});
