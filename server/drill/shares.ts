/**
 * When a share of all had arrived, in the unit of the times; null if it never did.
 * @param times null for who has not arrived
 */
export function shareAfter(times: readonly (number | null)[], share: number): number | null {
  const arrived = times.filter((time) => time !== null).sort((a, b) => a - b);
  const needed = Math.ceil(share * times.length);
  return arrived[needed - 1] ?? null;
}

export function seconds(ms: number | null): string {
  return ms === null ? 'never' : `${(ms / 1_000).toFixed(1)} s`;
}
