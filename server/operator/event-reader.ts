import { setTimeout as sleep } from 'node:timers/promises';
import { EVENTS, type EventData, type EventName } from '../../contract/events.ts';
import { Problem } from '../problem.ts';
import { askDirector, type DirectorSession, reasonOf, Unanswered } from './director-session.ts';
import { EventParser } from './sse.ts';

/** Reads a director's events, over cuts too: each time from behind the last event that came. */

/** A director says every 4 s that it lives. */
const SILENCE_MS = 15_000;
const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 5_000;

export type Told = { [N in EventName]: { event: N; data: EventData<N> } }[EventName];

/** Connection trouble in words, once for each spell of it; null when it is over. */
export type Trouble = { trouble: string | null };

/** Until the signal aborts. Throws a {@link Problem} for what another attempt will not mend. */
export async function* readEvents(
  director: DirectorSession,
  signal: AbortSignal,
): AsyncGenerator<{ told: Told } | Trouble> {
  const position: { lastId?: string } = {};
  let troubled = false;
  let retryMs = FIRST_RETRY_MS;
  let reached = false;
  while (!signal.aborted) {
    try {
      for await (const told of readOnce(director, position, signal)) {
        if (troubled) yield { trouble: null };
        troubled = false;
        reached = true;
        retryMs = FIRST_RETRY_MS;
        yield { told };
      }
    } catch (error) {
      if (signal.aborted) return;
      // What was wrong from the start is for the person to mend.
      if (!(error instanceof Unanswered) || !reached) throw error;
      if (!troubled) yield { trouble: error.message };
      troubled = true;
    }
    await sleep(retryMs, undefined, { signal }).catch(() => undefined);
    retryMs = Math.min(retryMs * 2, MAX_RETRY_MS);
  }
}

async function* readOnce(
  director: DirectorSession,
  position: { lastId?: string },
  signal: AbortSignal,
): AsyncGenerator<Told> {
  const silent = new AbortController();
  const watchdog = setTimeout(() => silent.abort(), SILENCE_MS);
  const headers: Record<string, string> = position.lastId === undefined ? {} : { 'last-event-id': position.lastId };
  const lost = (why: string) => new Unanswered(`the director at ${director.origin} is lost (${why})`);
  try {
    const asked = { headers, signal: AbortSignal.any([signal, silent.signal]) };
    const reply = await askDirector(director, '/v1/admin/events', asked);
    if (reply.status === 503) throw new Unanswered(`the director at ${director.origin} has too many readers`);
    if (!reply.ok || reply.body === null) throw new Problem(`the director answered ${reply.status}`);
    const parser = new EventParser();
    const text = reply.body.pipeThrough(new TextDecoderStream());
    for await (const chunk of text) {
      watchdog.refresh();
      for (const event of parser.push(chunk)) {
        const told = event && read(event.event, event.data);
        if (told) yield told;
        if (event?.id !== undefined) position.lastId = event.id;
      }
    }
    throw lost('it ended the stream');
  } catch (error) {
    if (error instanceof Problem || signal.aborted) throw error;
    throw lost(silent.signal.aborted ? 'it says nothing any more' : reasonOf(error));
  } finally {
    clearTimeout(watchdog);
  }
}

/** Null for an event of a newer version. */
function read(name: string, data: string): Told | null {
  if (!(name in EVENTS)) return null;
  const event = name as EventName;
  const parsed = EVENTS[event].safeParse(JSON.parse(data));
  return parsed.success ? ({ event, data: parsed.data } as Told) : null;
}
