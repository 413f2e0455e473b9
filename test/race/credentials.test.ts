import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { hashToken } from '../../contract/credentials.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { InstallResult } from '../../server/sql-interface.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { interleave, openSession, type Session } from './sessions.ts';

const CELL = { cell_id: 'cell-a', incarnation: randomUUID() };
const WIDTH = 8;
const tokenHash = () => hashToken(randomUUID());

let database: FreshDatabase;
let sessions: Session[];
let pair: [Session, Session];
/** A host of its own for each test, with a seat on the cell at epoch 3. */
let host: { user_id: string; relay_host_id: string };

beforeAll(async () => {
  database = await freshDatabase();
  await database.query(
    `insert into relay.cell_runtime (cell_id, incarnation, started_at, ready, heard_at, enforced_units, inclusion_watermark)
     values ($1, $2, relay.now(), true, relay.now(), 0, 0)`,
    [CELL.cell_id, CELL.incarnation],
  );
  sessions = await Promise.all(Array.from({ length: WIDTH }, () => openSession(database, 'relay_cell')));
  pair = [sessions[0]!, sessions[1]!];
});
afterAll(async () => {
  await Promise.all(sessions.map((session) => session.close()));
  await database.drop();
});

beforeEach(async () => {
  host = { user_id: `user-${randomUUID()}`, relay_host_id: tokenHash().slice(0, 16) };
  await database.query(
    `insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at) values ($1, $2, $3, 3, relay.now())`,
    [host.user_id, host.relay_host_id, CELL.cell_id],
  );
});

const invite =
  (token_hash: string, relay_device_id = 'phone') =>
  (session: Session) =>
    session.call('create_invite', { ...host, ...CELL, relay_device_id, token_hash });
const open = (credential_hash: string, conn_id: string) => (session: Session) =>
  session.call('open_connection', {
    ...CELL,
    relay_host_id: host.relay_host_id,
    credential_hash,
    conn_id,
    seats: [{ user_id: host.user_id, epoch: 3 }],
  });
const release = (token_hash: string, conn_id: string) => (session: Session) =>
  session.call('release_invite', { ...CELL, relay_host_id: host.relay_host_id, token_hash, conn_id });
const byBasis =
  (req_id: string, token_hash: string, conn_id: string, new_token_hash = tokenHash()) =>
  (session: Session) =>
    session.call('install_credential', {
      ...host,
      ...CELL,
      req_id,
      relay_device_id: 'phone',
      new_token_hash,
      authorization_mode: 'relay-basis',
      basis: { conn_id, token_hash },
    });
const direct =
  (req_id: string, relay_device_id = 'phone', direct_auth_id: string = randomUUID(), new_token_hash = tokenHash()) =>
  (session: Session) =>
    session.call('install_credential', {
      ...host,
      ...CELL,
      req_id,
      relay_device_id,
      new_token_hash,
      authorization_mode: 'authenticated-direct',
      direct_auth_id,
    });
const confirm =
  (req_id: string, basis_conn_id: string, credential_version = 1, relay_device_id = 'phone') =>
  (session: Session) =>
    session.call('confirm_resume', {
      ...host,
      ...CELL,
      req_id,
      basis_conn_id,
      basis: { relay_device_id, credential_version },
    });
const revoke = (session: Session) => session.call('revoke_device', { ...host, ...CELL, relay_device_id: 'phone' });

async function heldInvite(): Promise<string> {
  const hash = tokenHash();
  await invite(hash)(pair[0]);
  await open(hash, 'conn-1')(pair[0]);
  return hash;
}
async function device(): Promise<{ version: number; revoked: boolean; grace: boolean; days_left: number }> {
  const [row] = await database.query<{ version: number; revoked: boolean; grace: boolean; days_left: number }>(
    `select version, revoked_at is not null as revoked, previous_hash is not null as grace,
       round(extract(epoch from resume_expires_at - relay.now()) / 86400)::int as days_left
     from relay.device where user_id = $1 and relay_device_id = 'phone'`,
    [host.user_id],
  );
  return row!;
}
async function inviteState(hash: string): Promise<string> {
  const [row] = await database.query<{ state: string }>(
    'select relay.invite_state(i, relay.now()) as state from relay.invite i where token_hash = $1',
    [hash],
  );
  return row!.state;
}

describe('two installs', () => {
  test.each(['relay-basis', 'authenticated-direct'] as const)(
    'S12 of one request in both modes, %s first: one install, one identical answer',
    async (mode) => {
      const hash = await heldInvite();
      const calls = [byBasis('r', hash, 'conn-1'), direct('r')] as const;
      const [first, second] = mode === 'relay-basis' ? calls : ([calls[1], calls[0]] as const);
      const race = await interleave(database, pair, first, second);
      expect(race.waited).toBe(true);
      expect(race.first).toMatchObject({ outcome: 'committed', authorization_mode: mode, current_version: 1 });
      expect(race.second).toEqual(race.first);
      expect((await device()).version).toBe(1);
      expect(await pair[0].call('install_status', { ...host, relay_device_id: 'phone', req_id: 'r' })).toEqual(
        race.first,
      );
    },
  );

  test('S12 of one request of a device that has a token already', async () => {
    await direct('before')(pair[0]);
    const race = await interleave(database, pair, direct('r'), byBasis('r', await heldInvite(), 'conn-1'));
    expect(race).toMatchObject({ waited: true, first: { outcome: 'committed', current_version: 2 } });
    expect(race.second).toEqual(race.first);
    expect((await device()).version).toBe(2);
  });

  test('S12 of one request, sent twice with one authorization', async () => {
    const race = await interleave(database, pair, direct('r', 'phone', 'auth'), direct('r', 'phone', 'auth'));
    expect(race).toMatchObject({ waited: true, first: { outcome: 'committed', current_version: 1 } });
    expect(race.second).toEqual(race.first);
  });

  test('of two requests of a new device: both, one version after the other', async () => {
    const race = await interleave(database, pair, direct('r1'), direct('r2'));
    expect(race).toMatchObject({
      waited: true,
      first: { current_version: 1, grace_expires_at: null },
      second: { current_version: 2, grace_expires_at: expect.any(Number) },
    });
  });

  test('of two devices with one direct authorization: one', async () => {
    const race = await interleave(database, pair, direct('r1', 'phone', 'auth'), direct('r2', 'tablet', 'auth'));
    expect(race).toMatchObject({
      waited: true,
      first: { outcome: 'committed' },
      second: { outcome: 'invalid_direct_authorization' },
    });
  });

  test('of two requests by one invite: one', async () => {
    const hash = await heldInvite();
    const race = await interleave(database, pair, byBasis('r1', hash, 'conn-1'), byBasis('r2', hash, 'conn-1'));
    expect(race).toMatchObject({
      waited: true,
      first: { outcome: 'committed' },
      second: { outcome: 'invalid_relay_basis' },
    });
  });

  test('S17 of one request, the first rolled back: the second installs as if alone', async () => {
    const hash = await heldInvite();
    const race = await interleave(database, pair, direct('r'), byBasis('r', hash, 'conn-1'), 'rollback');
    expect(race).toMatchObject({
      waited: true,
      second: { outcome: 'committed', authorization_mode: 'relay-basis', current_version: 1 },
    });
    expect(await inviteState(hash)).toBe('consumed');
  });
});

describe('one invite', () => {
  test('two phones: one gets it', async () => {
    const hash = tokenHash();
    await invite(hash)(pair[0]);
    const race = await interleave(database, pair, open(hash, 'conn-1'), open(hash, 'conn-2'));
    expect(race).toMatchObject({
      waited: true,
      first: { outcome: 'opened' },
      second: { outcome: 'credential_refused' },
    });
  });

  test('two phones, the first one rolled back: the second gets it, as the first attempt', async () => {
    const hash = tokenHash();
    await invite(hash)(pair[0]);
    const race = await interleave(database, pair, open(hash, 'conn-1'), open(hash, 'conn-2'), 'rollback');
    expect(race.second).toMatchObject({ outcome: 'opened' });
    expect(
      await database.query('select attempts, reserved_by from relay.invite where token_hash = $1', [hash]),
    ).toEqual([{ attempts: 1, reserved_by: 'conn-2' }]);
  });

  test(`${WIDTH} phones at once: one gets it, and one attempt is counted`, async () => {
    const hash = tokenHash();
    await invite(hash)(pair[0]);
    const answers = await Promise.all(sessions.map((session, n) => open(hash, `conn-${n}`)(session)));
    expect(answers.map((answer) => answer.outcome).sort()).toEqual([
      ...Array.from({ length: WIDTH - 1 }, () => 'credential_refused'),
      'opened',
    ]);
    expect(await database.query('select attempts from relay.invite where token_hash = $1', [hash])).toEqual([
      { attempts: 1 },
    ]);
  });

  test('a reservation does not outlast its time by the wait for a lock', async () => {
    const hash = await heldInvite();
    await pair[0].run('begin');
    await release(hash, 'conn-2')(pair[0]); // holds the row, changes nothing
    const pending = byBasis('r', hash, 'conn-1')(pair[1]);
    await database.advanceClock(LIMITS.inviteReservationMs);
    await pair[0].run('commit');
    expect(await pending).toMatchObject({ outcome: 'invalid_relay_basis' });
  });

  test('install and release, in both orders', async () => {
    const one = await heldInvite();
    expect(await interleave(database, pair, byBasis('r1', one, 'conn-1'), release(one, 'conn-1'))).toMatchObject({
      waited: true,
      first: { outcome: 'committed' },
      second: 'not_reserved',
    });
    const two = await heldInvite();
    expect(await interleave(database, pair, release(two, 'conn-1'), byBasis('r2', two, 'conn-1'))).toMatchObject({
      waited: true,
      first: 'cooldown',
      second: { outcome: 'invalid_relay_basis' },
    });
  });

  test('install and a newer invite, in both orders', async () => {
    const one = await heldInvite();
    expect(await interleave(database, pair, byBasis('r1', one, 'conn-1'), invite(tokenHash()))).toMatchObject({
      waited: true,
      first: { outcome: 'committed' },
      second: { outcome: 'created' },
    });
    expect(await inviteState(one)).toBe('consumed');
    const two = await heldInvite();
    expect(await interleave(database, pair, invite(tokenHash()), byBasis('r2', two, 'conn-1'))).toMatchObject({
      waited: true,
      first: { outcome: 'created' },
      second: { outcome: 'invalid_relay_basis' },
    });
  });

  test('a phone and a newer invite, in both orders', async () => {
    const one = tokenHash();
    await invite(one)(pair[0]);
    const opened = await interleave(database, pair, open(one, 'conn-1'), invite(tokenHash()));
    expect(opened).toMatchObject({ waited: true, first: { outcome: 'opened' }, second: { outcome: 'created' } });
    expect(await inviteState(one)).toBe('invalidated');
    const two = tokenHash();
    await invite(two)(pair[0]);
    const late = await interleave(database, pair, invite(tokenHash()), open(two, 'conn-1'));
    expect(late).toMatchObject({ waited: true, second: { outcome: 'unknown_credential' } });
  });

  test('a phone and a revoke, in both orders', async () => {
    const one = tokenHash();
    await invite(one)(pair[0]);
    expect(await interleave(database, pair, open(one, 'conn-1'), revoke)).toMatchObject({
      waited: true,
      first: { outcome: 'opened' },
      second: 'revoked',
    });
    expect(await byBasis('r', one, 'conn-1')(pair[0])).toMatchObject({ outcome: 'invalid_relay_basis' });
    const two = tokenHash();
    await invite(two)(pair[0]);
    expect(await interleave(database, pair, revoke, open(two, 'conn-1'))).toMatchObject({
      waited: true,
      first: 'revoked',
      second: { outcome: 'unknown_credential' },
    });
  });
});

describe('several invites', () => {
  test('two new ones of one device: the later one alone is left', async () => {
    const [one, two] = [tokenHash(), tokenHash()];
    const race = await interleave(database, pair, invite(one), invite(two));
    expect(race).toMatchObject({ waited: true, first: { outcome: 'created' }, second: { outcome: 'created' } });
    expect([await inviteState(one), await inviteState(two)]).toEqual(['invalidated', 'available']);
  });

  test(`exactly ${LIMITS.invitesPerAccountPerMinute} of 40 asked for at once are made`, async () => {
    const each = sessions.map(async (session, s) => {
      const outcomes: string[] = [];
      for (let n = s; n < 40; n += WIDTH) outcomes.push((await invite(tokenHash(), `device-${n}`)(session)).outcome);
      return outcomes;
    });
    const outcomes = (await Promise.all(each)).flat();
    const made = outcomes.filter((outcome) => outcome === 'created');
    expect(made.length).toBe(LIMITS.invitesPerAccountPerMinute);
    expect(outcomes.filter((outcome) => outcome === 'rate_limit_exceeded').length).toBe(40 - made.length);
  });
});

describe('confirm, rotate, revoke (S14)', () => {
  beforeEach(async () => {
    await direct('first')(pair[0]);
    await database.advanceClock(5 * 86_400_000);
  });

  test('confirm, then rotate: renewed, then replaced', async () => {
    const race = await interleave(database, pair, confirm('c', 'conn-1'), direct('r'));
    expect(race).toMatchObject({
      waited: true,
      first: { outcome: 'confirmed', accepted_as: 'current', renewed: true, current_version: 1 },
      second: { outcome: 'committed', current_version: 2 },
    });
    expect(await device()).toMatchObject({ version: 2, grace: true });
  });

  test('rotate, then confirm: confirmed under grace, not renewed', async () => {
    const race = await interleave(database, pair, direct('r'), confirm('c', 'conn-1'));
    expect(race).toMatchObject({
      waited: true,
      second: { outcome: 'confirmed', accepted_as: 'grace', renewed: false, current_version: 2 },
    });
  });

  test('confirm, then revoke', async () => {
    const race = await interleave(database, pair, confirm('c', 'conn-1'), revoke);
    expect(race).toMatchObject({ waited: true, first: { outcome: 'confirmed', renewed: true }, second: 'revoked' });
    expect(await device()).toMatchObject({ revoked: true });
  });

  test('revoke, then confirm: rejected, and not renewed', async () => {
    const race = await interleave(database, pair, revoke, confirm('c', 'conn-1'));
    expect(race).toMatchObject({ waited: true, first: 'revoked', second: { outcome: 'reject-revoked' } });
    expect(await device()).toMatchObject({ revoked: true, days_left: 25 });
  });

  test('rotate, then revoke: revoked', async () => {
    const race = await interleave(database, pair, direct('r'), revoke);
    expect(race).toMatchObject({ waited: true, second: 'revoked' });
    expect(await device()).toMatchObject({ version: 2, revoked: true });
  });

  test('revoke, then rotate: the new token works, the revoked one gets no grace', async () => {
    const race = await interleave(database, pair, revoke, direct('r'));
    expect(race).toMatchObject({ waited: true, second: { outcome: 'committed', grace_expires_at: null } });
    expect(await device()).toMatchObject({ version: 2, revoked: false, grace: false });
  });

  test('one confirmation sent twice: one answer', async () => {
    const race = await interleave(database, pair, confirm('c', 'conn-1'), confirm('c', 'conn-1'));
    expect(race).toMatchObject({ waited: true, first: { outcome: 'confirmed', renewed: true } });
    expect(race.second).toEqual(race.first);
  });

  test('one request for the connections of two devices: one is confirmed', async () => {
    await direct('other', 'tablet')(pair[0]);
    const race = await interleave(database, pair, confirm('c', 'conn-1'), confirm('c', 'conn-2', 1, 'tablet'));
    expect(race).toMatchObject({
      waited: true,
      first: { outcome: 'confirmed' },
      second: { outcome: 'confirmation_tuple_mismatch' },
    });
  });

  test('confirm, revoke, and the confirmation again before either is done: the replay answers as the first', async () => {
    const [one, two, three] = [sessions[0]!, sessions[1]!, sessions[2]!];
    await one.run('begin');
    const first = await confirm('c', 'conn-1')(one);
    const rest = [revoke(two), confirm('c', 'conn-1')(three)] as const;
    await one.run('commit');
    expect(await Promise.all(rest)).toEqual(['revoked', first]);
  });
});

test('a storm of everything on one device: no deadlock, no version lost, one answer a request', async () => {
  const storm = await Promise.all(Array.from({ length: WIDTH }, () => openSession(database, 'relay_cell')));
  const hashes = Array.from({ length: 3 }, tokenHash);
  const installs = new Map<string, InstallResult>();
  const pick = seededPicker(20_300_101);
  const install = async (session: Session, hash: string, conn: string): Promise<void> => {
    const req = `req-${pick(30)}`;
    const answer = await (pick(2) ? byBasis(req, hash, conn) : direct(req))(session);
    if (answer.outcome !== 'committed') return;
    expect(answer).toEqual(installs.get(req) ?? answer);
    installs.set(req, answer);
  };
  const renew = async (session: Session): Promise<void> => {
    const fresh = tokenHash();
    hashes[pick(hashes.length)] = fresh;
    const { outcome } = await invite(fresh)(session);
    if (outcome === 'rate_limit_exceeded') await database.advanceClock(60_000);
  };
  const work = async (session: Session, worker: number): Promise<void> => {
    for (let n = 0; n < 40; n++) {
      const hash = hashes[pick(hashes.length)]!;
      const conn = `conn-${pick(2)}`;
      const actions = [
        () => renew(session),
        () => open(hash, conn)(session),
        () => open(hash, conn)(session),
        () => release(hash, conn)(session),
        () => install(session, hash, conn),
        () => install(session, hash, conn),
        () => confirm(`confirm-${worker}-${n}`, conn, 1 + pick(8))(session),
        () => revoke(session),
      ];
      await actions[pick(actions.length)]!();
    }
  };
  await Promise.all(storm.map(work));

  const versions = [...installs.values()].map((answer) => answer.current_version!);
  expect(versions.sort((a, b) => a - b)).toEqual(Array.from({ length: versions.length }, (_, n) => n + 1));
  expect((await device()).version).toBe(versions.length);
  const [left] = await database.query<{ invites: number }>(
    `select count(*)::int as invites from relay.invite where user_id = $1 and consumed_at is null and invalidated_at is null`,
    [host.user_id],
  );
  expect(left!.invites).toBeLessThanOrEqual(1);
  // a deadlock would hide behind the retries of an install; a backend reports it as it leaves
  await Promise.all(storm.map((session) => session.close()));
  const gone = 'select not exists (select from pg_stat_activity where pid = any($1)) as gone';
  await expect
    .poll(async () => (await database.query<{ gone: boolean }>(gone, [storm.map(({ pid }) => pid)]))[0]!.gone)
    .toBe(true);
  expect(await database.query('select deadlocks from pg_stat_database where datname = current_database()')).toEqual([
    { deadlocks: 0 },
  ]);
});

/** Small and repeatable (Mulberry32); the order in which sessions draw from it is the race's own. */
function seededPicker(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}
