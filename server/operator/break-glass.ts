import { Problem } from '../problem.ts';
import { type Ask, expectOk, ModeWork, type SwitchOptions } from './mode-steps.ts';

/** Of the one question to a cell that is believed to be gone. */
const PROBE_TIMEOUT_MS = 2_000;
/** A load balancer speaking for a cell that is not there. */
const NOT_THE_CELL = new Set([502, 503, 504]);

/**
 * Takes a reserve cell that is gone back to db, without its help. Refused while its heartbeat is fresh or its origin
 * answers: such a cell may seat hosts from memory that no row names. Throws a {@link Problem}.
 */
export async function breakGlass(ask: Ask, cellId: string, options: SwitchOptions): Promise<void> {
  const work = new ModeWork(ask, cellId, options);
  const row = await work.row();
  if (row.state === 'live' || row.state === 'not ready') {
    throw new Problem(
      `${cellId} is ${row.state}: orca-relay mode ${cellId} db takes it back without breaking anything`,
    );
  }
  const [{ url } = { url: '' }] = await ask<{ url: string }>('select url from relay_v1.fleet where cell_id = $1', [
    cellId,
  ]);
  const answered = await answerOf(url, options.signal);
  if (answered !== null) {
    throw new Problem(
      `${cellId} sends no heartbeat, but its origin answers (${answered}): its process may still seat hosts. Stop it first`,
    );
  }
  if (row.flag_mode === 'reserve') {
    expectOk(await work.flag(row, 'db'));
    work.step(`flags say db (generation ${row.flags_generation + 1})`);
  }
  expectOk(await work.record('db'));
  work.step(`recorded as db: what was seated there from memory and not recorded yet is forgotten`);
}

/** What an origin says of itself, null if nobody is there. */
async function answerOf(url: string, signal?: AbortSignal): Promise<string | null> {
  const timeout = AbortSignal.timeout(PROBE_TIMEOUT_MS);
  try {
    const response = await fetch(new URL('/health', url), {
      redirect: 'manual',
      signal: signal === undefined ? timeout : AbortSignal.any([timeout, signal]),
    });
    await response.body?.cancel();
    return NOT_THE_CELL.has(response.status) ? null : `HTTP ${response.status}`;
  } catch {
    return null;
  }
}
