import {
  createHost,
  type HostCommands,
  type HostConnection,
  newHostKeys,
  type RelayHost,
  RelayTokenError,
  type RelayTokenSource,
  selfHostedTokens,
} from '../../client/index.ts';
import { packageVersion } from '../package-root.ts';
import { Problem } from '../problem.ts';

/** A seat as its host knows it. */
export interface Seating {
  cellUrl: string;
  epoch: number;
  /** On this process's clock. */
  at: number;
}

export interface Member {
  relayHostId: string;
  host: RelayHost;
  /** Null while it has no socket. */
  seat: Seating | null;
  /** Every seat it ever took, oldest first. */
  seatings: Seating[];
  /** Why it lost each of them. */
  losses: { code: number; reason: string; at: number; seat: Seating }[];
}

/** Whether it sits where it first sat, on the socket that it had then. */
export function keptSocket({ seat, seatings }: Member): boolean {
  return seat !== null && seatings.length === 1;
}

const AT_ONCE = 20;
const ONLINE_TIMEOUT_MS = 60_000;

/** What a desktop does for a phone that connects. */
export type Serve = (connection: HostConnection, commands: HostCommands) => Promise<void>;

async function echo({ stream }: HostConnection): Promise<void> {
  for await (const message of stream) await stream.send(message);
}

/** Desktops with real sockets, that behave as the reference client does. */
export class Crowd {
  readonly members: Member[] = [];
  /** How often a host was told to come again, by the reason it was given. */
  readonly refusals = new Map<string, number>();
  readonly #tokens: RelayTokenSource;
  readonly #directors: readonly string[];

  readonly #serve: Serve;

  constructor(directors: readonly string[], selfHostedKey: string, serve: Serve = echo) {
    this.#directors = directors;
    this.#serve = serve;
    this.#tokens = firstOf(directors.map((relayOrigin) => selfHostedTokens({ relayOrigin, selfHostedKey })));
  }

  /** Resolves when all of them are seated. Throws a {@link Problem}. */
  async gather(count: number, preferredRegion: string): Promise<Member[]> {
    const gathered: Member[] = [];
    for (let left = count; left > 0; left -= AT_ONCE) {
      const batch = Array.from({ length: Math.min(left, AT_ONCE) }, () => this.#hire(preferredRegion));
      gathered.push(...batch);
      await Promise.all(batch.map(({ host }) => host.online(AbortSignal.timeout(ONLINE_TIMEOUT_MS)))).catch((error) => {
        throw new Problem(`a host of the drill found no seat: ${(error as Error).message}`);
      });
    }
    return gathered;
  }

  on(cellUrl: string): Member[] {
    return this.members.filter(({ seat }) => seat?.cellUrl === cellUrl);
  }

  stop(): void {
    for (const { host } of this.members) host.stop();
  }

  #hire(preferredRegion: string): Member {
    const host = createHost({
      directorOrigins: this.#directors,
      keys: newHostKeys(),
      tokens: this.#tokens,
      appVersion: `drill-${packageVersion}`,
      preferredRegion,
      onConnection: (connection) => this.#serve(connection, host.commands),
    });
    const member: Member = { relayHostId: host.names.relayHostId, host, seat: null, seatings: [], losses: [] };
    host.on('online', ({ cellUrl, assignmentEpoch }) => {
      member.seat = { cellUrl, epoch: assignmentEpoch, at: performance.now() };
      member.seatings.push(member.seat);
    });
    host.on('lost', ({ code, reason }) => {
      if (member.seat !== null) member.losses.push({ code, reason, at: performance.now(), seat: member.seat });
      member.seat = null;
    });
    host.on('retry', ({ reason }) => this.refusals.set(reason, (this.refusals.get(reason) ?? 0) + 1));
    host.start();
    this.members.push(member);
    return member;
  }
}

/** Asks the first director that gives a token. */
function firstOf(sources: readonly RelayTokenSource[]): RelayTokenSource {
  return async (names, signal) => {
    let last: unknown;
    for (const source of sources) {
      try {
        return await source(names, signal);
      } catch (error) {
        if (error instanceof RelayTokenError && error.final) throw error;
        last = error;
      }
    }
    throw last;
  };
}
