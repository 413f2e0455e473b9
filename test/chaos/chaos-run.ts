import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import type { RelayPhone } from '../../client/index.ts';
import { createPhone, newResumeToken, pairWithInvite } from '../../client/index.ts';
import { relayTypes } from '../../server/database.ts';
import { serveDemoPhone } from '../../server/dev/demo-desktop.ts';
import { DemoPhone } from '../../server/dev/demo-phone.ts';
import type { LocalDatabase } from '../../server/dev/local-postgres.ts';
import { readPostmaster } from '../../server/dev/postgres-orphan.ts';
import { Crowd, type Member } from '../../server/drill/crowd.ts';
import { type DrillFleet, startDrillFleet } from '../../server/drill/drill-fleet.ts';
import { switchMode } from '../../server/operator/mode-steps.ts';
import { historyProblems } from '../race/history.ts';
import { installTestClock } from '../support/test-clock.ts';
import { type Act, nextAct, type Stage } from './acts.ts';
import { findingsOf, type PhoneStory } from './findings.ts';
import { between, seeded } from './random.ts';

/** One run of chaos: the same seed does the same things in the same order; how they fall together, the machine decides. */

export interface ChaosOptions {
  seed: number;
  seconds: number;
  say(text: string): void;
}

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const CELLS = ['c1', 'c2', 'c3', 'c4', 'c5', 'c6'].map((id, n) => ({ id, region: n < 4 ? 'east' : 'west' }));
const RESERVE_CELLS = ['c2', 'c3'];
const SLOTS = 1;
const HOSTS = 40;
const PHONES = 10;
const MAX_SKEW_MS = 30_000;
const MOST_AT_ONCE = 4;
/** After the last fault: two back-offs of a client that has failed often, and the minute in which nobody is judged. */
const HEAL_MS = 240_000;
const LOOK_MS = 500;

export async function runChaos({ seed, seconds, say }: ChaosOptions): Promise<string[]> {
  const random = seeded(seed);
  const world = await ChaosWorld.open(random);
  try {
    say(
      `seed ${seed}: ${HOSTS} hosts and ${PHONES} phones on ${CELLS.length} cells, ${RESERVE_CELLS.length} in reserve mode`,
    );
    await act(world.stage, random, seconds * 1_000, say);
    say('everything is mended');
    await world.heal();
    return await world.findings();
  } finally {
    await world.close();
  }
}

/** Begins something every second or three, a few at a time, each undone in its own time. */
async function act(stage: Stage, random: () => number, forMs: number, say: (text: string) => void): Promise<void> {
  const until = performance.now() + forMs;
  const busy = new Map<string, { act: Act; over: Promise<void> }>();
  const ended = new AbortController();
  while (performance.now() < until) {
    await sleep(between(random, 1_000, 3_000));
    const next = nextAct(stage, random);
    // One thing at a time happens to a process.
    const about = next.text.split(' ')[0] as string;
    if (busy.size >= MOST_AT_ONCE || busy.has(about)) continue;
    say(`${next.text}${next.lasts > 0 ? `, for ${(next.lasts / 1_000).toFixed(0)} s` : ''}`);
    await next.begin();
    const over = sleep(next.lasts, undefined, { signal: ended.signal })
      .catch(() => undefined)
      .then(() => next.undo())
      .then(() => {
        busy.delete(about);
      });
    busy.set(about, { act: next, over });
  }
  ended.abort();
  await Promise.all([...busy.values()].map(({ over }) => over));
}

class ChaosWorld {
  readonly stage: Stage;
  readonly #fleet: DrillFleet;
  readonly #crowd: Crowd;
  readonly #owner: pg.Pool;
  readonly #phones: { name: string; member: Member; phone: RelayPhone; app: DemoPhone | null }[] = [];
  readonly #slots: NodeJS.Timeout;
  #mostSlots = 0;

  static async open(random: () => number): Promise<ChaosWorld> {
    const fleet = await startDrillFleet({ cells: CELLS, directors: 2, node: skewed(random), prepare: prepareDatabase });
    const origins = fleet.directors.map(({ origin }) => origin);
    const crowd = new Crowd(origins, fleet.selfHostedKey, serveDemoPhone);
    try {
      const members = await crowd.gather(HOSTS, 'east');
      for (const id of RESERVE_CELLS) {
        await fleet.ask(
          `select relay_v1.set_cell_flags($1, m.flags || $2, m.flags_generation) from relay_v1.modes m where m.cell_id = $1`,
          [id, JSON.stringify({ deadManTripSlots: SLOTS })],
        );
        await switchMode(fleet.ask, id, 'reserve', { onStep: () => undefined });
      }
      const world = new ChaosWorld(
        fleet,
        crowd,
        new pg.Pool({ connectionString: ownerUrl(fleet.database), max: 2, types: relayTypes }),
      );
      for (const [n, member] of members.slice(0, PHONES).entries()) await world.#pair(`phone-${n}`, member, origins);
      return world;
    } catch (error) {
      crowd.stop();
      await fleet.stop();
      throw error;
    }
  }

  private constructor(fleet: DrillFleet, crowd: Crowd, owner: pg.Pool) {
    this.#fleet = fleet;
    this.#crowd = crowd;
    this.#owner = owner;
    owner.on('error', () => undefined);
    this.stage = {
      fleet,
      crashPostgres: () => crash(fleet.database),
      stepClock: async (ms) => {
        // Postgres may be away: then its clock stays.
        await owner.query('select test_clock.advance($1)', [`${ms} ms`]).catch(() => undefined);
      },
    };
    this.#slots = setInterval(() => void this.#countSlots(), LOOK_MS);
  }

  async #countSlots(): Promise<void> {
    const text = 'select count(*) as held from relay_v1.trip_slots where holds_slot';
    const { rows } = await this.#owner.query<{ held: number }>(text).catch(() => ({ rows: [] }));
    this.#mostSlots = Math.max(this.#mostSlots, rows[0]?.held ?? 0);
  }

  async #pair(name: string, member: Member, directorOrigins: string[]): Promise<void> {
    const { stream, endpoint } = await pairWithInvite(await member.host.invite(name));
    const { token, hash } = newResumeToken();
    await new DemoPhone(stream).provision(hash);
    stream.close();
    const phone = createPhone({
      directorOrigins,
      relayHostId: member.relayHostId,
      endpoint,
      resumeTokens: [token],
      confirm: async (connection) => {
        await new DemoPhone(connection.stream).confirm();
      },
    });
    const entry = { name, member, phone, app: null as DemoPhone | null };
    phone.on('connected', (connection) => {
      entry.app = new DemoPhone(connection.stream);
    });
    phone.on('disconnected', () => {
      entry.app = null;
    });
    this.#phones.push(entry);
    phone.start();
  }

  /** Resolves when everybody is served again, or when that has taken too long. */
  async heal(): Promise<void> {
    const until = performance.now() + HEAL_MS;
    const served = () =>
      this.#crowd.members.every(({ seat }) => seat !== null) && this.#phones.every(({ app }) => app !== null);
    while (!served() && performance.now() < until) await sleep(LOOK_MS);
  }

  async findings(): Promise<string[]> {
    const cellOf = (url: string) => this.#fleet.cells.find(({ origin }) => origin === url)?.id ?? url;
    const phones: PhoneStory[] = await Promise.all(
      this.#phones.map(async ({ name, app }) => ({ phone: name, answered: await answers(app) })),
    );
    const processes = [...this.#fleet.directors, ...this.#fleet.cells];
    const told = findingsOf({
      hosts: this.#crowd.members.map(({ relayHostId, seat, seatings, losses }) => ({
        host: relayHostId,
        seatings: seatings.map(({ cellUrl, ...rest }) => ({ cell: cellOf(cellUrl), ...rest })),
        losses: losses.map(({ seat: lost, ...rest }) => ({ ...rest, cell: cellOf(lost.cellUrl), epoch: lost.epoch })),
        seated: seat !== null,
      })),
      phones,
      deaths: processes.flatMap(({ id, diedOf }) => (diedOf === null ? [] : [{ process: id, of: diedOf }])),
      slots: { most: this.#mostSlots, allowed: SLOTS },
    });
    // What the sweep has pruned meanwhile belongs to the history.
    await this.#owner.query(
      'insert into relay.change overriding system value select * from chaos.change on conflict do nothing',
    );
    const query = async (text: string, values: readonly unknown[] = []) =>
      (await this.#owner.query(text, [...values])).rows as never;
    return [...told, ...(await historyProblems({ query }))];
  }

  async close(): Promise<void> {
    clearInterval(this.#slots);
    for (const { phone } of this.#phones) phone.stop();
    this.#crowd.stop();
    await this.#owner.end();
    await this.#fleet.stop();
  }
}

async function answers(app: DemoPhone | null): Promise<boolean> {
  if (app === null) return false;
  const late = new Promise<null>((resolve) => setTimeout(resolve, 5_000, null).unref());
  return (await Promise.race([app.roundTrip('still there?'), late]).catch(() => null)) !== null;
}

/** Each process has a wall clock of its own, wrong by up to half a minute; a restart keeps it. */
function skewed(random: () => number) {
  const skews = new Map<string, number>();
  return (id: string) => {
    const skew = skews.get(id) ?? Math.round(between(random, -MAX_SKEW_MS, MAX_SKEW_MS));
    skews.set(id, skew);
    return {
      script: path.join(ROOT, 'server/cli.ts'),
      options: ['--import', 'tsx', '--import', path.join(ROOT, 'test/chaos/skew.mjs')],
      env: { CHAOS_SKEW_MS: `${skew}` },
    };
  };
}

function ownerUrl({ dataFolder, urls }: LocalDatabase): string {
  const url = new URL(urls.operator);
  url.username = 'orca_relay';
  url.password = readFileSync(`${dataFolder}.password`, 'utf8').trim();
  return url.href;
}

/** A clock that can be stepped, and a copy of the change log that is not pruned. */
async function prepareDatabase(database: LocalDatabase): Promise<void> {
  const client = new pg.Client({ connectionString: ownerUrl(database) });
  await client.connect();
  try {
    await installTestClock(client);
    await client.query(`
      create schema chaos;
      create table chaos.change (like relay.change);
      create function chaos.keep() returns trigger language plpgsql security definer as $$
      begin
        insert into chaos.change select new.*;
        return null;
      end $$;
      create trigger keep after insert on relay.change for each row execute function chaos.keep();`);
  } finally {
    await client.end();
  }
}

function crash({ dataFolder }: LocalDatabase): void {
  const postmaster = dataFolder === null ? null : readPostmaster(dataFolder);
  if (postmaster !== null) process.kill(postmaster.pid, 'SIGQUIT');
}
