import pg from 'pg';
import { toDatabaseError } from '../database.ts';
import { Problem } from '../problem.ts';
import { databaseProblem } from '../schema-version.ts';
import type { LocalSecrets } from './local-secrets.ts';

/** Which rights the processes of a local installation log in with. */
const LOGINS = {
  director: ['relay_director'],
  cell: ['relay_cell'],
  combined: ['relay_director', 'relay_cell'],
  operator: ['relay_operator'],
} as const;

export type LoginUrls = Record<keyof typeof LOGINS, string>;

const TIMEOUT_MS = 10_000;
const INSUFFICIENT_PRIVILEGE = '42501';

/**
 * Login roles of this installation, members of the relay roles, with a password of its own. On a server where the owner may
 * make no roles, everything logs in as the owner. Throws a {@link Problem}.
 */
export async function loginRoles(ownerUrl: string, { id, databasePassword }: LocalSecrets): Promise<LoginUrls> {
  const client = new pg.Client({
    connectionString: ownerUrl,
    connectionTimeoutMillis: TIMEOUT_MS,
    query_timeout: TIMEOUT_MS,
  });
  client.on('error', () => undefined);
  const urls: Partial<LoginUrls> = {};
  try {
    await client.connect();
    for (const [login, groups] of Object.entries(LOGINS) as [keyof LoginUrls, readonly string[]][]) {
      const name = `orca_${login}_${id}`;
      await client.query(loginSql(name, databasePassword, groups));
      urls[login] = withLogin(ownerUrl, name, databasePassword);
    }
    return urls as LoginUrls;
  } catch (error) {
    const failure = toDatabaseError(error);
    if (failure.code === INSUFFICIENT_PRIVILEGE) {
      return { director: ownerUrl, cell: ownerUrl, combined: ownerUrl, operator: ownerUrl };
    }
    throw new Problem(databaseProblem(failure));
  } finally {
    await client.end().catch(() => undefined);
  }
}

function loginSql(name: string, password: string, groups: readonly string[]): string {
  const role = pg.escapeIdentifier(name);
  return `
    do $$ begin
      if not exists (select from pg_roles where rolname = ${pg.escapeLiteral(name)}) then
        create role ${role};
      end if;
    end $$;
    alter role ${role} login password ${pg.escapeLiteral(password)};
    grant ${groups.map((group) => pg.escapeIdentifier(group)).join(', ')} to ${role};`;
}

function withLogin(url: string, user: string, password: string): string {
  const login = new URL(url);
  login.username = user;
  login.password = password;
  return login.href;
}
