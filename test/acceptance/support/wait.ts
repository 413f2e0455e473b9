/** Polls until a condition holds; the error says what was last seen. */
export async function until<T>(
  what: string,
  look: () => T | Promise<T>,
  good: (seen: T) => boolean,
  timeoutMs = 40_000,
): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const seen = await look();
    if (good(seen)) return seen;
    if (performance.now() > deadline)
      throw new Error(`${what} not within ${timeoutMs} ms; last: ${JSON.stringify(seen)}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}
