import { LIMITS } from '../contract/limits.ts';
import { readRetryAfter } from './backoff.ts';
import { type Clock, deadline, orAborted } from './clock.ts';

export type Fetch = typeof fetch;

export type HttpOutcome =
  | { kind: 'answer'; status: number; body: unknown; retryAfterMs?: number }
  /** No answer of the relay's: unreachable, too late, or a proxy spoke in its place. */
  | { kind: 'unanswered'; reason: string };

export interface HttpPost {
  url: string;
  body: object;
  timeoutMs: number;
  bearer?: string;
  signal?: AbortSignal;
}

/** One POST of JSON, bounded in time and in the size of its answer; never throws and never retries. */
export async function postJson(ports: { fetch: Fetch; clock: Clock }, post: HttpPost): Promise<HttpOutcome> {
  const limit = deadline(ports.clock, post.timeoutMs, post.signal);
  try {
    return await orAborted(exchange(ports, post, limit.signal), limit.signal);
  } catch (error) {
    return { kind: 'unanswered', reason: describe(error) };
  } finally {
    limit.done();
  }
}

async function exchange(
  ports: { fetch: Fetch; clock: Clock },
  post: HttpPost,
  signal: AbortSignal,
): Promise<HttpOutcome> {
  const headers: Record<string, string> = { 'content-type': 'application/json' };
  if (post.bearer !== undefined) headers.authorization = `Bearer ${post.bearer}`;
  const response = await ports.fetch(post.url, {
    method: 'POST',
    headers,
    body: JSON.stringify(post.body),
    redirect: 'error',
    signal,
  });
  const body = parseJson(await readBounded(response));
  if (body === undefined) return { kind: 'unanswered', reason: `HTTP ${response.status} without JSON` };
  const retryAfterMs = readRetryAfter(response.headers.get('retry-after'), ports.clock.now());
  return { kind: 'answer', status: response.status, body, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
}

async function readBounded(response: Response): Promise<string> {
  const reader = response.body?.getReader();
  if (!reader) return '';
  const decoder = new TextDecoder();
  let text = '';
  let bytes = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    bytes += value.byteLength;
    if (bytes > LIMITS.maxResolveReplyBytes) {
      await reader.cancel();
      throw new Error(`answer over ${LIMITS.maxResolveReplyBytes} bytes`);
    }
    text += decoder.decode(value, { stream: true });
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Node's fetch hides the useful message one level down. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { cause } = error;
  if (!(cause instanceof Error)) return error.message;
  return cause.message || String((cause as { code?: unknown }).code ?? error.message);
}
