import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import type { Environment } from '../config.ts';
import { Problem } from '../problem.ts';
import { unwritable } from './postgres-user.ts';

const secrets = z.strictObject({
  /** Tells this installation's login roles from another one's in the same cluster. */
  id: z.string().regex(/^[0-9a-f]{8}$/),
  signingKey: z.string().min(32),
  selfHostedKey: z.string().regex(/^[\w-]{32,256}$/),
  databasePassword: z.string().min(16),
});

export type LocalSecrets = z.infer<typeof secrets>;

/** The secrets of a local installation, made at its first start and kept in its data folder for this user alone. */
export function localSecrets(dataDir: string): LocalSecrets {
  const file = path.join(dataDir, 'secrets.json');
  const kept = readSecrets(file);
  if (kept) return kept;
  const made: LocalSecrets = {
    id: randomBytes(4).toString('hex'),
    signingKey: randomBytes(32).toString('base64url'),
    selfHostedKey: randomBytes(32).toString('base64url'),
    databasePassword: randomBytes(24).toString('hex'),
  };
  writePrivate(file, `${JSON.stringify(made, null, 2)}\n`);
  return made;
}

/** What the environment says goes before what was made here. */
export function chosenSecrets(
  env: Environment,
  made: LocalSecrets,
): Pick<LocalSecrets, 'signingKey' | 'selfHostedKey'> {
  return {
    signingKey: env.ORCA_RELAY_ASSIGNMENT_SIGNING_KEY || made.signingKey,
    selfHostedKey: env.ORCA_RELAY_SELF_HOSTED_KEY || made.selfHostedKey,
  };
}

function readSecrets(file: string): LocalSecrets | null {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return null;
    throw new Problem(`cannot read ${file} (${code})`);
  }
  const parsed = secrets.safeParse(parseJson(text));
  if (!parsed.success) throw new Problem(`${file} is damaged: restore it, or remove it to make new keys`);
  return parsed.data;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Whole or not at all, readable by this user only. Throws a {@link Problem} when the folder cannot be written. */
export function writePrivate(file: string, text: string): void {
  const part = `${file}.${process.pid}`;
  try {
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(part, text, { mode: 0o600 });
    renameSync(part, file);
  } catch (error) {
    throw new Problem(unwritable(path.dirname(file), error));
  }
}
