import { performance } from 'node:perf_hooks';
import {
  createHost,
  createPhone,
  newHostKeys,
  newResumeToken,
  type PhoneConnection,
  pairWithInvite,
  type RelayHost,
  type RelayPhone,
  selfHostedTokens,
} from '../../client/index.ts';
import { packageVersion } from '../package-root.ts';
import { Problem } from '../problem.ts';
import { serveDemoPhone } from './demo-desktop.ts';
import { DemoPhone } from './demo-phone.ts';
import { DemoScreen, type Out } from './demo-screen.ts';

export interface DemoOptions {
  /** Origins. */
  directors: readonly string[];
  selfHostedKey: string;
  /** How much goes each way. */
  mib: number;
  /** Ends the demo at once; it then throws whatever it was about to. */
  signal?: AbortSignal;
  out?: Out;
}

const ONLINE_TIMEOUT_MS = 30_000;
const PHONE_TIMEOUT_MS = 30_000;
const PROVISION_TIMEOUT_MS = 20_000;
/** For each MiB, on top of the time to connect: far below what a loopback does, so that only a standstill hits it. */
const TRANSFER_MS_PER_MIB = 2_000;
const WARM_UP_ROUND_TRIPS = 50;
const ROUND_TRIPS = 500;
const MIB = 1_048_576;
const DEVICE = 'demo-phone';

interface Cast {
  screen: DemoScreen;
  host: RelayHost;
  phone: RelayPhone | null;
}

/** A desktop and a phone, both in this process, meet through a relay that runs. Throws a Problem when they do not. */
export async function runDemo(options: DemoOptions): Promise<void> {
  const started = performance.now();
  const screen = new DemoScreen(options.out ?? process.stdout, process.env);
  const cast: Cast = { screen, host: hireDesktop(options), phone: null };
  const dismiss = () => {
    cast.phone?.stop();
    cast.host.stop();
  };
  options.signal?.addEventListener('abort', dismiss, { once: true });
  try {
    await goOnline(cast);
    const pairing = await pairPhone(cast);
    const connection = await resumePhone(cast, options, pairing);
    await useShell(screen, connection);
    await moveFiles(screen, connection, options.mib * MIB);
    await measureRoundTrips(screen, connection);
    await cutPhone(cast, connection);
    screen.end(`Done in ${((performance.now() - started) / 1_000).toFixed(1)} s: everything worked.`);
  } catch (error) {
    if (error instanceof Problem) throw error;
    throw new Problem(`the demo failed: ${error instanceof Error ? error.message : String(error)}`);
  } finally {
    options.signal?.removeEventListener('abort', dismiss);
    dismiss();
  }
}

function hireDesktop({ directors, selfHostedKey }: DemoOptions): RelayHost {
  const relayOrigin = directors[0] ?? '';
  const host = createHost({
    directorOrigins: directors,
    keys: newHostKeys(),
    tokens: selfHostedTokens({ relayOrigin, selfHostedKey }),
    appVersion: `demo-${packageVersion}`,
    onConnection: (connection) => serveDemoPhone(connection, host.commands),
  });
  return host;
}

async function goOnline({ screen, host }: Cast): Promise<void> {
  screen.step('A desktop goes online');
  const off = host.on('retry', ({ reason, inMs }) =>
    screen.note(`${reason}; again in ${(inMs / 1_000).toFixed(1)} s …`),
  );
  const seated = host.next('online');
  const [, ms] = await timed(async () => {
    host.start();
    await host.online(AbortSignal.timeout(ONLINE_TIMEOUT_MS));
  });
  const { cellUrl, assignmentEpoch } = await seated;
  screen.did(`the director placed it on ${cellUrl} at epoch ${assignmentEpoch}; key proved, seat taken`, ms);
  off();
}

async function pairPhone({ screen, host }: Cast) {
  screen.step('A phone pairs with an invite');
  const [invite, inviteMs] = await timed(() => host.invite(DEVICE));
  const minutes = Math.round((invite.inviteExpiresAt - Date.now()) / 60_000);
  screen.did(`the desktop has an invite, good for ${minutes} min and one device`, inviteMs);
  const signal = AbortSignal.timeout(PHONE_TIMEOUT_MS);
  const [{ stream, endpoint }, pairMs] = await timed(() => pairWithInvite(invite, { signal }));
  screen.did('phone and desktop are spliced together', pairMs);
  const { token, hash } = newResumeToken();
  const app = new DemoPhone(stream);
  const [installed, installMs] = await timed(() => within(PROVISION_TIMEOUT_MS, app.provision(hash)));
  const days = Math.round((installed.expiresAt - Date.now()) / 86_400_000);
  screen.did(`resume credential installed: version ${installed.version}, good for ${days} days`, installMs);
  stream.close();
  await stream.closed;
  return { token, endpoint };
}

async function resumePhone(
  cast: Cast,
  { directors }: DemoOptions,
  { token, endpoint }: Awaited<ReturnType<typeof pairPhone>>,
): Promise<PhoneConnection> {
  const { screen, host } = cast;
  screen.step('The phone comes back with its token');
  let renewed = false;
  const phone = createPhone({
    directorOrigins: directors,
    relayHostId: host.names.relayHostId,
    endpoint,
    resumeTokens: [token],
    async confirm({ stream }) {
      renewed = (await new DemoPhone(stream).confirm()).renewed;
    },
  });
  cast.phone = phone;
  const connected = phone.next('connected');
  const [connection, ms] = await timed(async () => {
    phone.start();
    return within(PHONE_TIMEOUT_MS, connected);
  });
  const how = renewed ? 'confirmed, and good for another 30 days' : 'confirmed';
  screen.did(`resumed, ${how}`, ms);
  return connection;
}

async function useShell(screen: DemoScreen, { stream }: PhoneConnection): Promise<void> {
  screen.step('A shell on the desktop, from the phone');
  const app = new DemoPhone(stream);
  for (const command of ['echo hello from the phone', 'uname', 'date']) {
    screen.shell(command, await within(PHONE_TIMEOUT_MS, app.run(command)));
  }
}

async function moveFiles(screen: DemoScreen, { stream }: PhoneConnection, bytes: number): Promise<void> {
  screen.step(`${bytes / MIB} MiB each way`);
  const app = new DemoPhone(stream);
  const limitMs = PHONE_TIMEOUT_MS + (bytes / MIB) * TRANSFER_MS_PER_MIB;
  for (const [label, way] of [
    ['desktop → phone', 'download'],
    ['phone → desktop', 'upload'],
  ] as const) {
    const bar = screen.bar(label, bytes);
    try {
      const [sha256, ms] = await timed(() => within(limitMs, app[way](bytes, bar.at)));
      bar.done();
      const rate = (bytes / MIB / (ms / 1_000)).toFixed(0);
      screen.did(`${label}  ${rate} MiB/s  sha-256 ${sha256.slice(0, 16)}… on both sides`, ms);
    } finally {
      bar.done();
    }
  }
}

async function measureRoundTrips(screen: DemoScreen, { stream }: PhoneConnection): Promise<void> {
  screen.step(`${ROUND_TRIPS} round trips, phone → cell → desktop and back`);
  const app = new DemoPhone(stream);
  const payload = 'x'.repeat(64);
  const times: number[] = [];
  for (let n = -WARM_UP_ROUND_TRIPS; n < ROUND_TRIPS; n += 1) {
    const ms = await within(PHONE_TIMEOUT_MS, app.roundTrip(payload));
    if (n >= 0) times.push(ms);
  }
  times.sort((a, b) => a - b);
  screen.did(`p50 ${percentile(times, 0.5).toFixed(2)} ms, p99 ${percentile(times, 0.99).toFixed(2)} ms`);
}

async function cutPhone({ screen, phone }: Cast, { stream }: PhoneConnection): Promise<void> {
  screen.step("The phone's connection is cut");
  if (!phone) return;
  const lost = phone.next('disconnected');
  const back = phone.next('connected');
  const since = performance.now();
  stream.terminate();
  const { code } = await within(PHONE_TIMEOUT_MS, lost);
  screen.did(`the socket is gone (${code}), without a word to either side`);
  const connection = await within(PHONE_TIMEOUT_MS, back);
  screen.did('the phone is back by itself: random pause, resume, confirm', performance.now() - since);
  const output = await within(PHONE_TIMEOUT_MS, new DemoPhone(connection.stream).run('echo still here'));
  screen.shell('echo still here', output);
}

/** @param sorted ascending, not empty */
export function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * share) - 1)] as number;
}

async function timed<T>(work: () => Promise<T>): Promise<[T, number]> {
  const since = performance.now();
  const result = await work();
  return [result, performance.now() - since];
}

async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Problem(`the demo failed: nothing came back within ${ms / 1_000} s`)), ms);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
