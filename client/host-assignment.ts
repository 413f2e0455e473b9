import type { AssignOutcome, Directors } from './directors.ts';
import { type RelayToken, RelayTokenError, type TokenKeeper } from './host-token.ts';

/** A relay token, then an assignment. Never throws; a token that was refused is not used again. */
export async function askAssignment(
  tokens: TokenKeeper,
  directors: Directors,
  ask: { relayHostId: string; preferredRegion: string | undefined },
  signal: AbortSignal,
): Promise<AssignOutcome> {
  const held = tokens.held;
  let token: RelayToken;
  try {
    token = await tokens.current(signal);
  } catch (error) {
    return judgeTokenError(error);
  }
  const outcome = await directors.assign({ ...ask, relayToken: token.relayToken }, signal);
  if (outcome.kind !== 'refused' || outcome.status !== 401) return outcome;
  tokens.forget();
  // Only a token that was issued a moment ago makes a 401 final: keys may have been changed since an older one.
  return token === held ? { kind: 'retry', reason: outcome.error, unanswered: false } : outcome;
}

function judgeTokenError(error: unknown): AssignOutcome {
  const reason = `no relay token: ${error instanceof Error ? error.message : String(error)}`;
  if (!(error instanceof RelayTokenError)) return { kind: 'retry', reason, unanswered: false };
  if (error.final) return { kind: 'refused', status: 401, error: reason };
  const { retryAfterMs } = error;
  return { kind: 'retry', reason, unanswered: false, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
}
