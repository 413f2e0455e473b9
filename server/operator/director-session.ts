import { type Environment, readVariable } from '../config.ts';
import { findUp } from '../dev/up-state.ts';
import { Problem } from '../problem.ts';

/** How the commands of a person ask a director. */

const ASK_TIMEOUT_MS = 10_000;

export interface DirectorOptions {
  /** Origin of a director; absent: that of a running `up`. */
  director?: string;
}

export interface DirectorSession {
  origin: string;
  headers: Readonly<Record<string, string>>;
}

/** The director to ask, and the key to show it. Throws a {@link Problem}. */
export function findDirector(options: DirectorOptions, env: Environment): DirectorSession {
  const key = readVariable(env, 'ORCA_RELAY_METRICS_KEY');
  const headers = key === null ? {} : { authorization: `Bearer ${key}` };
  if (options.director !== undefined) return { origin: originOf(options.director), headers };
  const dataDir = readVariable(env, 'ORCA_RELAY_DATA_DIR') as string;
  const up = findUp(dataDir);
  if (up) return { origin: up.director, headers };
  throw new Problem(`no director: no "orca-relay up" runs on ${dataDir}; name one with --director <origin>`);
}

function originOf(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url?.protocol === 'http:' || url?.protocol === 'https:') return url.origin;
  throw new Problem(`"${text}" is no origin of a director: it takes one such as https://relay.example.com`);
}

/** An answer that a person can do something with; others throw a {@link Problem}. 200, 400 and 503 are the caller's. */
export async function askDirector(
  { origin, headers }: DirectorSession,
  path: string,
  options: { headers?: Record<string, string>; signal?: AbortSignal } = {},
): Promise<Response> {
  const signal = options.signal ?? AbortSignal.timeout(ASK_TIMEOUT_MS);
  let reply: Response;
  try {
    reply = await fetch(`${origin}${path}`, { headers: { ...headers, ...options.headers }, signal, redirect: 'error' });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Unanswered(`no answer from the director at ${origin}: ${reasonOf(error)}`);
  }
  const refusal = REFUSALS[reply.status];
  if (refusal === undefined) return reply;
  await reply.body?.cancel();
  throw new Problem(`the director at ${origin} ${refusal}`);
}

/** It may answer another time. */
export class Unanswered extends Problem {}

const REFUSALS: Readonly<Record<number, string>> = {
  401: 'asks for its metrics key: set ORCA_RELAY_METRICS_KEY to the one that it has',
  403: 'answers only its own machine: run this there, or give it and this an ORCA_RELAY_METRICS_KEY',
  404: 'does not know this question: is it a cell, or an older version?',
};

/** What fetch says lies in the cause. */
export function reasonOf(error: unknown): string {
  const { cause, message, name } = error as Error & { cause?: Error & { code?: string } };
  if (name === 'TimeoutError') return 'it took too long';
  return cause?.code ?? (cause?.message || message);
}
