import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Fleet } from './support/fleet.ts';
import { newId, newIdentity, newToken } from './support/identity.ts';
import { connectInvite } from './support/parts.ts';
import { forwardedFor, newSource, Peer, refusal } from './support/peer.ts';
import { RawPhone } from './support/raw-phone.ts';
import { scrape, total } from './support/scrape.ts';
import { until } from './support/wait.ts';

let fleet: Fleet;
let origin: string;
beforeAll(async () => {
  fleet = await Fleet.start({ cells: [{ limit: { hardCap: 600, unobservedBound: 60 } }] });
  origin = fleet.cell().origin;
});
afterAll(() => fleet?.stop());

const hostId = newIdentity().relayHostId;
const silent = (source?: string, headers: Record<string, string> = {}) =>
  RawPhone.upgrade(origin, hostId, { headers, ...(source === undefined ? {} : { source }) });

async function empty(): Promise<void> {
  await until(
    'no units in use',
    () => fleet.units(fleet.cell()),
    (units) => units === 0,
  );
}
beforeEach(empty);
afterEach(async () => {
  expect(total(await scrape(origin), 'orca_relay_cell_unit_faults')).toBe(0);
});

async function dropAll(phones: RawPhone[]): Promise<void> {
  for (const phone of phones) phone.peer.drop();
  await Promise.all(phones.map((phone) => phone.peer.closed));
}

describe('upgrades', () => {
  test.each([
    ['/v1/connect/HOST?credential=x', 400],
    ['/v1/host/control?token=x', 400],
    ['/v1/host/data/abc?ticket=x', 400],
    ['/v1/nothing?x=1', 400],
    ['/v1/nothing', 404],
    ['/v1/connect', 404],
    ['/v1/connect/HOST/more', 429],
    ['/v1/connect/short', 429],
    ['/v1/connect/%E0%A4%A', 429],
    ['/v1/connect/abcdefghijklmno%21', 429],
    ['/v1/host/data/%E0%A4%A', 429],
    ['/v1/host/data/%', 429],
    [`/v1/host/data/${'x'.repeat(129)}`, 429],
    ['/v1/host/data/', 429],
    ['/v1/host/control', 401],
  ])('S3 an upgrade of %s is refused with %i', async (path, status) => {
    const refused = await refusal(Peer.dial(`${origin}${path.replace('HOST', hostId)}`));
    expect(refused.status).toBe(status);
    expect((await fetch(`${origin}/health`)).status).toBe(200);
  });

  test('a director refuses data and control, and moves invites only', async () => {
    const { origin: director } = fleet.director;
    expect((await refusal(Peer.dial(`${director}/v1/host/data/abc`))).status).toBe(404);
    expect((await refusal(Peer.dial(`${director}/v1/host/control`))).status).toBe(404);
    expect((await refusal(Peer.dial(`${director}/v1/connect/${hostId}?a=b`))).status).toBe(400);
    expect((await refusal(Peer.dial(`${director}/v1/connect/%zz`))).status).toBeGreaterThanOrEqual(400);
  });
});

describe('sockets that have not spoken', () => {
  test('S3 a source may have 4, another source is not affected, and a closed one makes room', async () => {
    const source = newSource();
    const phones = await Promise.all(Array.from({ length: 4 }, () => silent(source)));
    expect((await refusal(silent(source).then(({ peer }) => peer))).status).toBe(429);
    phones.push(await silent(newSource()));
    const [first] = phones.splice(0, 1);
    await dropAll([first as RawPhone]);
    phones.push(
      (await until(
        'room again',
        () => silent(source).catch(() => null),
        (phone) => phone !== null,
      )) as RawPhone,
    );
    await dropAll(phones);
  });

  test('S3 forged entries of X-Forwarded-For buy nothing: the last but one counts', async () => {
    const source = newSource();
    const forged = (index: number) => ({
      'x-forwarded-for': `198.51.100.${index}, 192.0.2.${index}, ${source}, 203.0.113.9`,
    });
    const phones = [];
    for (let index = 0; index < 4; index += 1) phones.push(await silent(undefined, forged(index)));
    expect((await refusal(silent(undefined, forged(9)).then(({ peer }) => peer))).status).toBe(429);
    await dropAll(phones);
  });

  test('a single entry of X-Forwarded-For is not believed', async () => {
    const single = (index: number) => ({ 'x-forwarded-for': `198.51.100.${index}` });
    const phones = [];
    for (let index = 0; index < 4; index += 1) phones.push(await silent(undefined, single(index)));
    expect((await refusal(silent(undefined, single(7)).then(({ peer }) => peer))).status).toBe(429);
    await dropAll(phones);
  });

  test('S3 45 in all, the 46th is 429, and after their first frame they count no more', async () => {
    const phones = await Promise.all(Array.from({ length: 45 }, () => silent()));
    expect((await refusal(silent().then(({ peer }) => peer))).status).toBe(429);
    const data = Peer.dial(`${origin}/v1/host/data/${newId('conn')}`);
    expect((await refusal(data)).status).toBe(429);

    const { identity, host } = await fleet.seat();
    expect(host.ack?.generation).toBe(1);
    const { inviteToken } = await host.createInvite(newId('device'));
    phones[0]?.auth(newToken());
    await phones[0]?.peer.closed;
    const phone = await RawPhone.knock(origin, identity.relayHostId, inviteToken);
    await host.connOpen();
    const another = await silent();
    phone.peer.drop();
    host.drop();
    await dropAll([...phones.slice(1), another]);
    await fleet.advance(31_000);
  });

  test('S3 the 31st attempt of a source within a minute is 429; the next minute is new', async () => {
    const source = newSource();
    for (let attempt = 0; attempt < 30; attempt += 1) {
      const phone = await silent(source);
      phone.auth('nonsense');
      await phone.peer.closed;
    }
    expect((await refusal(silent(source).then(({ peer }) => peer))).status).toBe(429);
    await fleet.advance(60_500);
    await dropAll([await silent(source)]);
  });

  test('a phone, a data socket and a host that stay silent for 2 s are closed 4401 with their reasons', async () => {
    const phone = await silent();
    const data = await Peer.dial(`${origin}/v1/host/data/${newId('conn')}`);
    const control = await Peer.dial(`${origin}/v1/host/control`, {
      headers: { authorization: `Bearer ${await fleet.token(newIdentity())}`, ...forwardedFor(newSource()) },
    });
    await fleet.advance(500);
    expect([phone.peer.isOpen, data.isOpen, control.isOpen]).toEqual([true, true, true]);
    await fleet.advance(2_000);
    expect(await phone.peer.close()).toMatchObject({ code: 4401, reason: 'first frame timeout' });
    expect(phone.peer.unread()).toEqual([]);
    expect((await data.close()).code).toBe(4401);
    expect(await control.close()).toMatchObject({ code: 4401, reason: 'host hello timeout' });
  });
});

describe('units', () => {
  test('S24 waves of bursts return to exactly zero, and read their code and reason', async () => {
    for (let wave = 0; wave < 3; wave += 1) {
      for (let burst = 0; burst < 4; burst += 1) {
        const phones = await Promise.all(Array.from({ length: 10 }, () => silent()));
        for (const phone of phones) phone.auth(newToken());
        const closes = await Promise.all(phones.map((phone) => phone.refused()));
        expect(new Set(closes.map(({ code }) => code))).toEqual(new Set([4409]));
      }
      await empty();
    }
  });

  test('S24 a peer that ignores its close is gone after 1 s, its unit back once, its code and reason readable', async () => {
    const phones = await Promise.all(Array.from({ length: 6 }, () => silent()));
    for (const phone of phones) {
      phone.auth(newToken());
      phone.peer.socket.pause();
    }
    await until(
      'refused',
      () => fleet.units(fleet.cell()),
      (units) => units <= 12,
    );
    await fleet.advance(1_200, 600);
    await empty();
    for (const phone of phones) phone.peer.socket.resume();
    for (const phone of phones) expect(await phone.refused()).toMatchObject({ code: 4409 });
    await empty();
  });

  test('S24 a pair that ends gives back all that it held', async () => {
    const { host } = await fleet.seat();
    const pair = await connectInvite(host);
    expect(await fleet.units(fleet.cell())).toBe(3);
    pair.data.socket.pause();
    pair.phone.peer.drop();
    await fleet.advance(1_200, 600);
    await until(
      'only the control left',
      () => fleet.units(fleet.cell()),
      (units) => units === 1,
    );
    host.peer.hangUp(1000, 'signed-out');
    await fleet.advance(31_000);
    await empty();
  });
});
