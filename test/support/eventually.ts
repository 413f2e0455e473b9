import { vi } from 'vitest';

/** Looks until it holds. Far longer than a busy machine needs, for what comes in the end whatever the time. */
export function eventually<T>(look: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(look, { timeout: 40_000, interval: 25 });
}
