import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet, type Node } from '../acceptance/support/fleet.ts';
import { scrape, total } from '../acceptance/support/scrape.ts';
import { until } from '../acceptance/support/wait.ts';

/** A cell whose machine stands still, and the process that takes its place. */
let fleet: Fleet;
let twin: Node | undefined;
beforeAll(async () => {
  fleet = await Fleet.start({ processes: true });
});
afterAll(async () => {
  await twin?.stop();
  await fleet?.stop();
});

test('V2 a process that is resumed after a new one booted: its writes are refused, it ends, and its hosts come back', async () => {
  const old = fleet.cell();
  const { identity, grant, host } = await fleet.seat();
  old.signal('SIGSTOP');
  twin = await fleet.twin(old);
  await twin.start();
  await fleet.heard([twin]);
  const [now] = await fleet.database.query(`select incarnation from relay.cell_runtime where cell_id = 'c1'`);

  old.signal('SIGCONT');
  expect((await host.peer.close()).code).toBe(4503);
  expect(await old.exited()).toMatchObject({ signal: null });
  expect(old.output()).toContain('stale_cell_incarnation');
  const back = await fleet.dial(identity, grant, { origin: twin.origin, relayOrigin: grant.cellUrl });
  expect(await fleet.leases(identity)).toMatchObject([
    { cell_id: 'c1', epoch: grant.assignmentEpoch, state: 'active' },
  ]);
  expect(await fleet.database.query(`select incarnation from relay.cell_runtime where cell_id = 'c1'`)).toEqual([now]);
  await until(
    'its host on the new one',
    async () => total(await scrape((twin as Node).origin), 'orca_relay_controls'),
    (count) => count === 1,
  );
  expect(back.peer.isOpen).toBe(true);
}, 180_000);
