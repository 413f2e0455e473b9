import { expect, test } from 'vitest';
import { readConfig } from '../../server/config.ts';
import { planFleet } from '../../server/dev/local-fleet.ts';

const urls = {
  director: 'postgres://d:d@127.0.0.1/x',
  cell: 'postgres://c:c@127.0.0.1/x',
  combined: 'postgres://b:b@127.0.0.1/x',
  operator: 'postgres://o:o@127.0.0.1/x',
};
const secrets = {
  id: '00000000',
  signingKey: 'made-signing-key'.padEnd(43, 'x'),
  selfHostedKey: 'made-self-hosted-key'.padEnd(43, 'x'),
  databasePassword: 'never handed to a process',
};
const cells = [{ id: 'cell-1', url: 'http://127.0.0.1:8081' }];

test('each process gets its own login, origin and role, and is content with what it gets', () => {
  const plans = planFleet({}, { urls, secrets }, 'http://127.0.0.1:8080', cells);
  expect(plans.map(({ name, args }) => [name, ...args])).toEqual([
    ['director', 'director'],
    ['cell-1', 'cell'],
  ]);
  const [director, cell] = plans.map(({ args, env }) => readConfig({ ...env, ORCA_RELAY_ROLE: args[0] }));
  expect(director).toMatchObject({ databaseUrl: urls.director, port: 8080, publicUrl: 'http://127.0.0.1:8080' });
  expect(cell).toMatchObject({
    databaseUrl: urls.cell,
    port: 8081,
    cellUrl: 'http://127.0.0.1:8081',
    cellId: 'cell-1',
  });
  expect(director?.signingKey).toBe(cell?.signingKey);
  expect(JSON.stringify(plans)).not.toContain(secrets.databasePassword);
});

test('what the environment sets goes before what was made, but an empty value is none', () => {
  const env = {
    ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: 'k'.repeat(32),
    ORCA_RELAY_SELF_HOSTED_KEY: '',
    ORCA_RELAY_REGION: 'mars',
  };
  const [director] = planFleet(env, { urls, secrets }, 'http://127.0.0.1:8080', cells);
  expect(readConfig(director?.env ?? {})).toMatchObject({
    signingKey: 'k'.repeat(32),
    selfHostedKey: secrets.selfHostedKey,
    region: 'mars',
  });
});
