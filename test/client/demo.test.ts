import { Writable } from 'node:stream';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { startDesktop } from '../../client/examples/desktop.ts';
import { keepConnected, pairPhone } from '../../client/examples/phone.ts';
import { runDemo } from '../../server/dev/demo.ts';
import { runCommand } from '../../server/dev/demo-desktop.ts';
import { Fleet } from '../acceptance/support/fleet.ts';

const selfHostedKey = 'k'.repeat(40);
let fleet: Fleet;

beforeAll(async () => {
  fleet = await Fleet.start({ cells: [{}, {}], env: { ORCA_RELAY_SELF_HOSTED_KEY: selfHostedKey } });
});
afterAll(() => fleet.stop());

function page(): { out: Writable; text(): string } {
  let text = '';
  const out = new Writable({
    write(chunk, _encoding, done) {
      text += chunk;
      done();
    },
  });
  return { out, text: () => text };
}

test('the demo goes through all its steps and says what it saw, plainly where there is no terminal', async () => {
  const { out, text } = page();
  await runDemo({ directors: [fleet.director.origin], selfHostedKey, mib: 8, out });
  if (process.env.SHOW_DEMO) process.stdout.write(text());
  for (const line of [
    /placed it on http:\/\/127\.0\.0\.1:\d+ at epoch 1/,
    /invite, good for (9|10) min/,
    /resume credential installed: version 1, good for 30 days/,
    /confirmed, and good for another 30 days/,
    /\$ echo hello from the phone\n {4}hello from the phone/,
    /desktop → phone {2}\d+ MiB\/s {2}sha-256 [0-9a-f]{16}… on both sides/,
    /phone → desktop {2}\d+ MiB\/s {2}sha-256 [0-9a-f]{16}… on both sides/,
    /p50 \d+\.\d\d ms, p99 \d+\.\d\d ms/,
    /the socket is gone \(1006\)/,
    /the phone is back by itself/,
    /everything worked/,
  ]) {
    expect(text()).toMatch(line);
  }
  expect(text()).not.toContain('\u001b');
});

test('a wrong key ends it with one line that says so', async () => {
  const { out } = page();
  const wrong = runDemo({ directors: [fleet.director.origin], selfHostedKey: 'w'.repeat(40), mib: 1, out });
  await expect(wrong).rejects.toThrow('the demo failed: the host is refused: no relay token: invalid_token');
});

test.each([
  ['echo  a   b', 'a b'],
  ['date; rm -rf /', 'date;: command not found'],
  ['constructor', 'constructor: command not found'],
  ['', ': command not found'],
])('its shell starts nothing: %j', (line, output) => {
  expect(runCommand(line)).toBe(output);
});

test('the examples of the guide do what it says', async () => {
  const said: unknown[] = [];
  const log = vi.spyOn(console, 'log').mockImplementation((text) => said.push(text));
  const host = startDesktop(fleet.director.origin, selfHostedKey);
  try {
    await host.online(AbortSignal.timeout(40_000));
    const pairing = await pairPhone(await host.invite('device-of-the-guide'));
    const phone = keepConnected(pairing, () => undefined);
    const { stream } = await phone.next('connected');
    await stream.send(JSON.stringify({ ask: 'echo', text: 'hello' }));
    expect(await stream.receive()).toBe('hello');
    phone.stop();
    expect(said).toEqual([`reachable through ${pairing.endpoint.cellUrl}`]);
  } finally {
    host.stop();
    log.mockRestore();
  }
});
