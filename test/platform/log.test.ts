import { expect, test } from 'vitest';
import { DatabaseError } from '../../server/database.ts';
import { createLogger, hostDigest, type LogEntry } from '../../server/log.ts';

function logged(entry: LogEntry): { line: string; parsed: Record<string, unknown> } {
  let line = '';
  const destination = {
    write: (text: string) => {
      line += text;
    },
  };
  createLogger({ role: 'cell', cellId: 'c1', destination }).info(entry);
  return { line, parsed: JSON.parse(line) };
}

test('a line is JSON with event, time, role and cell', () => {
  expect(logged({ event: 'orca_relay_seated', host: hostDigest('user-1', 'abcdefghijklmnop') }).parsed).toEqual({
    level: 'info',
    time: expect.stringMatching(/^\d{4}-.*Z$/),
    role: 'cell',
    cellId: 'c1',
    event: 'orca_relay_seated',
    host: expect.stringMatching(/^[0-9a-f]{12}$/),
  });
});

test('secrets and whole host ids stay out, also one level down', () => {
  const secret = 'do-not-print-me';
  const { line } = logged({
    event: 'orca_relay_probe',
    token: secret,
    relayHostId: secret,
    hello: { relayJwt: secret, controlResumeSecret: secret, user_id: secret, authorization: secret },
    config: { signingKey: secret, databaseUrl: secret },
  });
  expect(line).not.toContain(secret);
  expect(line).toContain('[redacted]');
});

test('an error loses what it quotes of URLs and tokens', () => {
  const error = new Error('connect postgres://orca:pass-word@db/x failed for Bearer eyJhbGciOi.eyJzdWIi.c2ln');
  const { line } = logged({ event: 'orca_relay_probe', error });
  expect(line).not.toMatch(/pass-word|eyJzdWIi/);
  expect(line).toContain('postgres://orca:[redacted]@db/x');
});

test('an error of the database shows its kind, a bug shows where it is', () => {
  const expected = new DatabaseError('busy', 'no connection in time', { code: '55P03' });
  const known = logged({ event: 'orca_relay_probe', error: expected }).parsed.error;
  expect(known).toEqual({ name: 'DatabaseError', message: 'no connection in time', code: '55P03', kind: 'busy' });
  expect(logged({ event: 'orca_relay_probe', error: new TypeError('x') }).parsed.error).toHaveProperty('stack');
});

test('a digest is of user and host together', () => {
  expect(hostDigest('ab', 'c')).not.toBe(hostDigest('a', 'bc'));
});
