import { SignJWT } from 'jose';
import { expect, test } from 'vitest';
import { hostNames, newHostKeys } from '../../client/host-keys.ts';
import { type RelayToken, TokenKeeper } from '../../client/host-token.ts';
import { ManualClock } from './support/manual-clock.ts';

const names = hostNames(newHostKeys());
const clock = new ManualClock(Date.now());

async function newToken(): Promise<RelayToken> {
  const expiresAt = clock.now() + 300_000;
  const relayToken = await new SignJWT({ prof: 'p', relayHostId: names.relayHostId, purpose: 'host-control' })
    .setProtectedHeader({ alg: 'HS256' })
    .setSubject('u')
    .setExpirationTime(Math.floor(expiresAt / 1_000))
    .sign(Buffer.alloc(32));
  return { relayToken, expiresAt };
}

/** An issuer that answers when it is told to, to each request apart. */
function scene() {
  const answers: ((token: RelayToken) => void)[] = [];
  const source = () => new Promise<RelayToken>((resolve) => answers.push(resolve));
  return { answers, keeper: new TokenKeeper({ clock, random: () => 0.5 }, source, names) };
}

test('two that ask at once share one request', async () => {
  const { answers, keeper } = scene();
  const asked = [keeper.fresh(new AbortController().signal), keeper.fresh(new AbortController().signal)];
  const token = await newToken();
  expect(answers).toHaveLength(1);
  answers[0]?.(token);
  expect(await Promise.all(asked)).toEqual([token, token]);
});

test('an attempt that follows one that was given up gets a token of its own, not its failure', async () => {
  const { answers, keeper } = scene();
  const first = new AbortController();
  const given = expect(keeper.current(first.signal)).rejects.toThrow('given up');
  first.abort(new Error('given up'));
  const second = keeper.current(new AbortController().signal);
  const token = await newToken();
  answers.at(-1)?.(token);
  expect(await second).toEqual(token);
  await given;
  expect(await keeper.current(new AbortController().signal)).toEqual(token);
  expect(answers).toHaveLength(2);
});
