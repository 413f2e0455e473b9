import { type Clock, type Random, systemClock } from './clock.ts';
import type { Fetch } from './http.ts';
import type { OpenSocket } from './socket.ts';

/** What a client needs of the world. Each has a default; tests hand in their own clock and a network that fails. */
export interface Ports {
  openSocket: OpenSocket;
  fetch: Fetch;
  clock: Clock;
  random: Random;
}

export function completePorts(openSocket: OpenSocket, given: Partial<Ports> = {}): Ports {
  return {
    openSocket,
    // Called through a function: browsers refuse a fetch that was detached from its window.
    fetch: (input, init) => fetch(input, init),
    clock: systemClock,
    random: Math.random,
    ...given,
  };
}
