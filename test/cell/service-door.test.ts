import { afterAll, beforeAll, expect, test } from 'vitest';
import { INVALID_REQUEST, serviceRoute } from '../../server/cell/service-door.ts';
import { createMetrics } from '../../server/metrics.ts';
import { cellAudience, signServiceToken, verifyServiceToken } from '../../server/service-token.ts';
import { createApp, type Listener, listen } from '../../server/uws.ts';

const KEY = 'a signing key of thirty-two bytes or more';
const metrics = createMetrics();
const serviceRequests = metrics.counter('requests', 'requests', ['path', 'status']);
const heard: string[] = [];
let listener: Listener;

beforeAll(async () => {
  const app = createApp();
  const core = {
    metrics: { serviceRequests },
    serviceCaller: (token: string) => verifyServiceToken(KEY, token, { audience: cellAudience('us-1') }),
  };
  serviceRoute(
    app,
    'post',
    '/internal/thing',
    core as never,
    ({ body }, { caller }) => {
      if (body?.toString() !== 'right') return INVALID_REQUEST;
      heard.push(caller);
      return { status: 200, json: { v: 1 } };
    },
    { maxBodyBytes: 16 },
  );
  listener = await listen(app, '127.0.0.1', 0);
});
afterAll(() => listener.destroy());

const token = (cellId = 'us-1') =>
  signServiceToken(KEY, { caller: 'director-1', role: 'director', audience: cellAudience(cellId) });

async function ask(authorization: string | undefined, body = 'right'): Promise<[number, unknown]> {
  const reply = await fetch(`http://127.0.0.1:${listener.port}/internal/thing`, {
    method: 'POST',
    body,
    headers: authorization === undefined ? {} : { authorization },
  });
  return [reply.status, await reply.json()];
}

test('a director of this fleet is heard, by name', async () => {
  expect(await ask(`Bearer ${await token()}`)).toEqual([200, { v: 1 }]);
  expect(heard).toEqual(['director-1']);
});

test('whoever shows no token for this very cell is not, whatever it says', async () => {
  const before = heard.length;
  const right = await token();
  for (const authorization of [undefined, '', right, `Basic ${right}`, 'Bearer x', `Bearer ${await token('us-2')}`]) {
    expect(await ask(authorization)).toEqual([401, { error: 'invalid_token' }]);
    expect(await ask(authorization, 'wrong')).toEqual([401, { error: 'invalid_token' }]);
  }
  expect(heard).toHaveLength(before);
});

test('a body over the bound is 413, one that does not fit 400; each is counted by its status', async () => {
  const authorization = `Bearer ${await token()}`;
  expect(await ask(authorization, 'x'.repeat(17))).toEqual([413, { error: 'request_too_large' }]);
  expect(await ask(authorization, 'wrong')).toEqual([400, { error: 'invalid_request' }]);
  const { values } = await serviceRequests.get();
  expect(values.map(({ labels }) => labels)).toEqual(
    expect.arrayContaining(['200', '400', '401'].map((status) => ({ path: '/internal/thing', status }))),
  );
});
