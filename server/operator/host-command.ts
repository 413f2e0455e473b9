import { relayHostId } from '../../contract/scalars.ts';
import { type Whereabouts, whereabouts } from '../../contract/whereabouts.ts';
import type { Environment } from '../config.ts';
import { painter } from '../dev/child-log.ts';
import { Problem } from '../problem.ts';
import { askDirector, type DirectorOptions, findDirector, reasonOf } from './director-session.ts';
import { whereaboutsText } from './host-text.ts';

export interface HostCommandOptions extends DirectorOptions {
  json?: boolean;
}

/** Prints where a host is and who says so. Throws a {@link Problem}, also when nobody knows who serves it. */
export async function runHost(id: string, options: HostCommandOptions, env: Environment): Promise<void> {
  if (!relayHostId.safeParse(id).success) {
    throw new Problem(
      `"${id}" is no host id: it is 16 letters, digits, - or _ (logs and events show only a digest of it)`,
    );
  }
  const director = findDirector(options, env);
  const reply = await askDirector(director, `/v1/admin/hosts/${id}`);
  const found = await read(reply);
  const text = options.json ? JSON.stringify(found) : whereaboutsText(found, painter(process.stdout, process.env));
  process.stdout.write(`${text}\n`);
  if (reply.status !== 200) throw new Problem(unknownWords(found));
}

async function read(reply: Response): Promise<Whereabouts> {
  try {
    return whereabouts.parse(await reply.json());
  } catch (error) {
    throw new Problem(
      `the director answered ${reply.status}, and nothing that this version can read (${reasonOf(error)})`,
    );
  }
}

function unknownWords({ store, mapComplete }: Whereabouts): string {
  if (!store.ok) return `this director does not know who serves it, and could not ask the database (${store.reason})`;
  const yet = mapComplete ? '' : '; it has not heard every cell yet, so ask again';
  return `this director does not know who serves it${yet}`;
}
