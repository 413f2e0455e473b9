import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { writeFeedCursor } from '../../contract/seat-feed.ts';
import { Fleet, type Node, type Seated } from '../acceptance/support/fleet.ts';
import { connectPair, installDevice, type Pair } from '../acceptance/support/parts.ts';
import { RawPhone } from '../acceptance/support/raw-phone.ts';
import { scrape, total } from '../acceptance/support/scrape.ts';
import { readFeed, readFull } from '../acceptance/support/seat-feed.ts';
import { until } from '../acceptance/support/wait.ts';
import { FeedReader } from '../cell/support/feed-reader.ts';

let fleet: Fleet;
beforeAll(async () => {
  const limit = { hardCap: 600, unobservedBound: 60 };
  fleet = await Fleet.start({ cells: [{ limit }, { limit }] });
});
afterAll(() => fleet?.stop());

interface Member {
  seated: Seated;
  resumeToken: string;
  pairs: Pair[];
}

const STEPS = [
  'pair',
  'half-pair',
  'drop-phone',
  'drop-data',
  'rebind',
  'new-generation',
  'lose-control',
  'wait',
] as const;
type Step = { step: (typeof STEPS)[number]; who: number };
const HOSTS = 4;

async function redial(member: Member, keep: boolean): Promise<void> {
  const { identity, grant, host } = member.seated;
  const next = await fleet.dial(identity, grant, keep ? { previous: host.previous } : {});
  if (next.ack?.generation !== host.ack?.generation) member.pairs = [];
  member.seated = { identity, grant, host: next };
}

async function perform(member: Member, step: Step['step']): Promise<void> {
  const { identity, grant, host } = member.seated;
  const last = member.pairs.at(-1);
  if (step === 'pair' && member.pairs.length < 6) member.pairs.push(await connectPair(host, member.resumeToken));
  else if (step === 'half-pair') {
    const phone = await RawPhone.knock(grant.cellUrl, identity.relayHostId, member.resumeToken);
    phone.peer.drop();
  } else if (step === 'drop-phone' && last !== undefined) {
    member.pairs.pop();
    last.phone.peer.drop();
    await last.data.closed;
  } else if (step === 'drop-data' && last !== undefined) {
    member.pairs.pop();
    last.data.drop();
    await last.phone.peer.closed;
  } else if (step === 'rebind') await redial(member, true);
  else if (step === 'new-generation') await redial(member, false);
  else if (step === 'lose-control') {
    host.drop();
    await host.peer.closed;
    await redial(member, true);
  } else await fleet.advance(4_000, 4_000);
  await leftoversGone(member);
}

/** A phone that hung up half-way may have set off a conn-open: nobody answers it, so it is taken away here. */
async function leftoversGone({ seated }: Member): Promise<void> {
  for (const _open of seated.host.waiting('conn-open')) await seated.host.connOpen();
}

const held = ({ pairs }: Member) => 1 + 2 * pairs.length;

/** One who reads each cell's feed now and then, as a director does. */
class Reader {
  readonly #held = new Map(fleet.cells.map((cell) => [cell.id, new FeedReader()]));

  async poll(cell: Node): Promise<void> {
    const reader = this.of(cell);
    const query = reader.cursor === null ? '' : `?since=${writeFeedCursor(reader.cursor)}`;
    const page = await readFeed(fleet, cell, query);
    reader.apply(page.incarnation, page);
  }

  of(cell: Node): FeedReader {
    return this.#held.get(cell.id) as FeedReader;
  }
}

/** Who followed the changes and who asks for everything now hold the same seats, and those the hosts have (85). */
async function feedAgrees(reader: Reader, cell: Node, here: Member[]): Promise<void> {
  await reader.poll(cell);
  const { full, counts } = await readFull(fleet, cell);
  const seats = full.map(({ userId, relayHostId, ...seat }) => [`${userId} ${relayHostId}`, seat]);
  expect([...reader.of(cell).seats].sort()).toEqual(seats.sort());
  expect(seats.map(([name]) => name)).toEqual(
    here.map(({ seated }) => `${seated.identity.userId} ${seated.identity.relayHostId}`).sort(),
  );
  expect(counts).toMatchObject({ seats: here.length, controls: here.length });
}

async function agrees(members: Member[], reader: Reader): Promise<void> {
  for (const cell of fleet.cells) {
    const here = members.filter(({ seated }) => seated.grant.cellUrl === cell.origin);
    await feedAgrees(reader, cell, here);
    const expected = here.reduce((sum, member) => sum + held(member), 0);
    await until(
      `${cell.id} holds ${expected} units`,
      () => fleet.units(cell),
      (units) => units === expected,
    );
    expect(total(await scrape(cell.origin), 'orca_relay_cell_unit_faults')).toBe(0);
    const [beat] = await fleet.database.query('select enforced_units from relay.cell_runtime where cell_id = $1', [
      cell.id,
    ]);
    expect(beat?.enforced_units, `last heartbeat of ${cell.id}`).toBe(expected);
  }
  for (const member of members) {
    const { identity, grant, host } = member.seated;
    expect(await fleet.leases(identity)).toEqual([
      {
        cell_id: fleet.cellAt(grant.cellUrl).id,
        epoch: 1,
        generation: host.ack?.generation,
        state: 'active',
        units: held(member),
      },
    ]);
  }
}

test('incident 34, 85: after any run, leases, heartbeats, feeds and what the cells hold agree to the unit', async () => {
  const steps = fc.array(fc.record<Step>({ step: fc.constantFrom(...STEPS), who: fc.nat(HOSTS - 1) }), {
    minLength: 20,
    maxLength: 40,
  });
  await fc.assert(
    fc.asyncProperty(steps, async (run) => {
      const members: Member[] = [];
      const reader = new Reader();
      for (let count = 0; count < HOSTS; count += 1) {
        const seated = await fleet.seat();
        members.push({ seated, resumeToken: (await installDevice(seated.host)).resumeToken, pairs: [] });
      }
      for (const { step, who } of run) {
        await perform(members[who] as Member, step);
        await reader.poll(fleet.cell(who % fleet.cells.length));
      }
      // Long enough for a renewal and a heartbeat, and for what nobody attached to end.
      await fleet.advance(64_000, 8_000);
      await agrees(members, reader);
      for (const { seated } of members) seated.host.peer.hangUp(1000, 'signed-out');
      for (const cell of fleet.cells) {
        await until(
          `${cell.id} empty`,
          () => fleet.units(cell),
          (units) => units === 0,
        );
      }
    }),
    { numRuns: 4 },
  );
  expect(fleet.problems()).toEqual([]);
  const odd = await fleet.database.query('select 1 from relay.assignment where epoch <> 1');
  expect(odd).toEqual([]);
});
