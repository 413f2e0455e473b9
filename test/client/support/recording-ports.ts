import { randomInt } from 'node:crypto';
import { type Clock, systemClock, type Timer } from '../../../client/clock.ts';
import type { Ports } from '../../../client/index.ts';
import type { OpenSocket, RelaySocket } from '../../../client/socket.ts';
import { openNodeSocket } from '../../../client/socket-node.ts';

export interface RecordedSocket extends RelaySocket {
  url: string;
  sent: string[];
}

/**
 * The real network from an address of its own, as behind a load balancer: what a relay allows each source a minute is
 * less than what a file of tests asks for.
 */
export function fromElsewhere(): OpenSocket {
  const address = Array.from({ length: 4 }, () => randomInt(1, 255)).join('.');
  return (target, handlers) =>
    openNodeSocket({ ...target, headers: { ...target.headers, 'x-forwarded-for': `${address}, 127.0.0.1` } }, handlers);
}

interface Armed {
  ms: number;
  run: () => void;
  timer: Timer;
}

/** The real network and the real clock, watched: sockets can be cut from outside, and timers fired before their time. */
export function recordingPorts(now: () => number = systemClock.now) {
  const sockets: RecordedSocket[] = [];
  const armed = new Set<Armed>();
  const open = fromElsewhere();
  let posts = 0;
  let held: Promise<void> = Promise.resolve();

  const openSocket: OpenSocket = (target, handlers) => {
    const socket = open(target, handlers);
    const sent: string[] = [];
    const recorded: RecordedSocket = {
      ...socket,
      url: target.url,
      sent,
      send(message) {
        if (typeof message === 'string') sent.push(message);
        return socket.send(message);
      },
    };
    sockets.push(recorded);
    return recorded;
  };

  const clock: Clock = {
    now,
    after(ms, run) {
      const entry: Armed = {
        ms,
        run,
        timer: systemClock.after(ms, () => {
          armed.delete(entry);
          run();
        }),
      };
      armed.add(entry);
      return {
        cancel() {
          armed.delete(entry);
          entry.timer.cancel();
        },
      };
    },
  };

  const ports: Partial<Ports> = {
    openSocket,
    clock,
    fetch: async (input, init) => {
      posts += 1;
      await held;
      return fetch(input, init);
    },
  };

  return {
    ports,
    sockets,
    posts: () => posts,
    /** Nothing that is asked over HTTP goes out until the function that this returns is called. */
    holdPosts(): () => void {
      let release = () => {};
      held = new Promise((resolve) => {
        release = resolve;
      });
      return () => release();
    },
    armed: (matches: (ms: number) => boolean) => [...armed].filter(({ ms }) => matches(ms)),
    /** Fires what is armed for such a time; waits for it to be armed first. */
    fireTimers(matches: (ms: number) => boolean): void {
      const look = () => {
        const found = [...armed].filter(({ ms }) => matches(ms));
        if (found.length === 0) {
          setTimeout(look, 5);
          return;
        }
        for (const entry of found) {
          armed.delete(entry);
          entry.timer.cancel();
          entry.run();
        }
      };
      look();
    },
  };
}
