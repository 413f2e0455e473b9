import { expect, it } from 'vitest';
import { Limiter } from '../../server/cell/limiter.ts';

it('runs so many at once, keeps the rest in order, refuses what is over, and says when it is idle', async () => {
  const limiter = new Limiter(2, 2);
  const done: number[] = [];
  const releases: (() => void)[] = [];
  const task = (n: number) => () =>
    new Promise<void>((resolve) => {
      releases.push(() => {
        done.push(n);
        resolve();
      });
    });
  expect([1, 2, 3, 4, 5].map((n) => limiter.run(task(n)))).toEqual([true, true, true, true, false]);
  expect(releases).toHaveLength(2);
  while (done.length < 4) {
    releases.shift()?.();
    await new Promise((resolve) => setImmediate(resolve));
  }
  await limiter.idle();
  expect(done).toEqual([1, 2, 3, 4]);
  expect(limiter.busy).toBe(false);
});
