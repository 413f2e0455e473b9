import { describe, expect, it } from 'vitest';
import { HostQueue, type QueueTurn } from '../../server/cell/host-queue.ts';
import { HandClock } from '../support/hand-clock.ts';

async function granted(turn: Promise<QueueTurn>): Promise<() => void> {
  const had = await turn;
  if (!had.granted) throw new Error('no turn');
  return had.release;
}

describe('activations take turns', () => {
  it('one at a time for a host, in order; other hosts do not wait', async () => {
    const queue = new HostQueue(new HandClock(), 30_000, 8);
    const order: string[] = [];
    const first = await granted(queue.turn('a'));
    const second = granted(queue.turn('a')).then((release) => {
      order.push('second');
      release();
    });
    const third = granted(queue.turn('a')).then((release) => {
      order.push('third');
      release();
    });
    (await granted(queue.turn('b')))();
    order.push('b');
    first();
    await Promise.all([second, third]);
    expect(order).toEqual(['b', 'second', 'third']);
    expect(queue.size).toBe(0);
  });

  it('gives up after 30 s, and the next in line is not held up by it', async () => {
    const clock = new HandClock();
    const queue = new HostQueue(clock, 30_000, 8);
    const release = await granted(queue.turn('a'));
    const waiting = queue.turn('a');
    clock.advance(30_000);
    expect(await waiting).toEqual({ granted: false });
    const later = queue.turn('a');
    release();
    release();
    (await granted(later))();
    expect(queue.size).toBe(0);
    expect(clock.armed).toBe(0);
  });

  it('refuses one more than may wait', async () => {
    const queue = new HostQueue(new HandClock(), 30_000, 1);
    const release = await granted(queue.turn('a'));
    const waiting = queue.turn('a');
    expect(await queue.turn('a')).toEqual({ granted: false });
    release();
    (await granted(waiting))();
  });
});
