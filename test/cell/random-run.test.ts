import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet, type Seated } from '../acceptance/support/fleet.ts';
import { connectPair, installDevice, type Pair } from '../acceptance/support/parts.ts';
import type { Peer } from '../acceptance/support/peer.ts';
import { RawPhone } from '../acceptance/support/raw-phone.ts';
import { scrape, total } from '../acceptance/support/scrape.ts';
import { until } from '../acceptance/support/wait.ts';

const HOSTS = 4;
const STEPS = 120;

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ cells: [{ limit: { hardCap: 600, unobservedBound: 60 } }] });
});
afterAll(() => fleet?.stop());

/** A small generator of our own, so that a seed replays the run. */
function randomFrom(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

interface Desk extends Seated {
  resumeToken: string;
  pairs: Pair[];
}

class Run {
  readonly desks: Desk[] = [];
  readonly loose: Peer[] = [];
  readonly #random: (below: number) => number;

  constructor(seed: number) {
    this.#random = randomFrom(seed);
  }

  async start(): Promise<void> {
    for (let i = 0; i < HOSTS; i += 1) {
      const seated = await fleet.seat();
      const { resumeToken } = await installDevice(seated.host);
      this.desks.push({ ...seated, resumeToken, pairs: [] });
    }
  }

  /** One thing that hosts and phones do, or that happens to them. */
  async step(): Promise<void> {
    const desk = this.desks[this.#random(this.desks.length)] as Desk;
    const deeds = [
      () => this.#connect(desk),
      () => this.#connect(desk),
      () => this.#hangUp(desk, ({ phone }) => phone.peer.drop()),
      () => this.#hangUp(desk, ({ phone }) => phone.peer.hangUp()),
      () => this.#hangUp(desk, ({ data }) => data.drop()),
      () => this.#knockAndLeave(desk),
      () => this.#rebind(desk),
      () => this.#newGeneration(desk),
      () => this.#badTicket(desk),
    ];
    await deeds[this.#random(deeds.length)]?.();
  }

  async #connect(desk: Desk): Promise<void> {
    if (desk.pairs.length >= 8) return;
    desk.pairs.push(await connectPair(desk.host, desk.resumeToken));
  }

  async #hangUp(desk: Desk, how: (pair: Pair) => void): Promise<void> {
    const [pair] = desk.pairs.splice(this.#random(desk.pairs.length), 1);
    if (pair === undefined) return;
    how(pair);
    await Promise.all([pair.phone.peer.closed, pair.data.closed]);
  }

  async #knockAndLeave(desk: Desk): Promise<void> {
    const phone = await RawPhone.knock(desk.host.origin, desk.identity.relayHostId, desk.resumeToken);
    if (this.#random(2) === 0 && desk.pairs.length < 8) await desk.host.connOpen();
    phone.peer.drop();
    await phone.peer.closed;
    // What it left may be on its way still.
    await settled();
    for (const _ of desk.host.waiting('conn-open')) await desk.host.connOpen();
  }

  async #rebind(desk: Desk): Promise<void> {
    const old = desk.host;
    desk.host = await fleet.dial(desk.identity, desk.grant, { previous: old.previous });
    await old.peer.closed;
  }

  async #newGeneration(desk: Desk): Promise<void> {
    const old = desk.host;
    desk.host = await fleet.dial(desk.identity, desk.grant);
    await Promise.all([old.peer.closed, ...desk.pairs.flatMap(({ phone, data }) => [phone.peer.closed, data.closed])]);
    desk.pairs = [];
  }

  async #badTicket(desk: Desk): Promise<void> {
    if (desk.pairs.length >= 8) return;
    const phone = await RawPhone.knock(desk.host.origin, desk.identity.relayHostId, desk.resumeToken);
    const open = await desk.host.connOpen();
    const wrong = await desk.host.attach({ ...open, connTicket: 'x'.repeat(43) });
    await wrong.closed;
    phone.peer.drop();
    await phone.peer.closed;
  }

  /** What is really there: a control a host, two sockets a splice. */
  get units(): number {
    return this.desks.reduce((sum, { pairs }) => sum + 1 + 2 * pairs.length, 0);
  }
}

const samples = () => scrape(fleet.cell().origin);

/** No phone is waiting for its host any more. */
async function settled(): Promise<void> {
  await until('nothing pending', samples, (seen) => total(seen, 'orca_relay_pending_splices') === 0);
}

test.each([1, 2, 3])(
  'after anything, units, heartbeat and leases say what is there (incident 34, seed %i)',
  async (seed) => {
    const run = new Run(seed);
    await run.start();
    for (let step = 0; step < STEPS; step += 1) await run.step();
    await until('the units of what is there', samples, (seen) => total(seen, 'orca_relay_cell_units') === run.units);
    const seen = await samples();
    expect(total(seen, 'orca_relay_cell_unit_faults')).toBe(0);
    expect(total(seen, 'orca_relay_controls')).toBe(HOSTS);
    expect(total(seen, 'orca_relay_splices')).toBe((run.units - HOSTS) / 2);
    await fleet.advance(46_000, 4_000);
    await until(
      'leases and heartbeat that agree',
      () =>
        fleet.database.query(`select (select sum(units)::int from relay.lease) as leased, r.enforced_units as beat,
        relay.load(r.cell_id, relay.now()) as load from relay.cell_runtime r`),
      ([row]) => row?.leased === run.units && row.beat === run.units && row.load === run.units,
    );
    for (const { host } of run.desks) host.peer.hangUp(1000, 'signed-out');
    await until(
      'nothing left',
      async () => [
        total(await samples(), 'orca_relay_cell_units'),
        (await fleet.database.query('select 1 from relay.lease')).length,
      ],
      ([units, leases]) => units === 0 && leases === 0,
    );
    expect(fleet.problems()).toEqual([]);
  },
);
