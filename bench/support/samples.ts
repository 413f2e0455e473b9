/** What a process tells at /metrics: values by name and labels, as written. */
export async function readSamples(origin: string): Promise<Map<string, number>> {
  const text = await (await fetch(`${origin}/metrics`)).text();
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => {
      const at = line.lastIndexOf(' ');
      return [line.slice(0, at), Number(line.slice(at + 1))];
    }),
  );
}

/** Of all samples of a metric with this label. */
export function sumOf(samples: ReadonlyMap<string, number>, name: string, label: string, value: string): number {
  let sum = 0;
  for (const [key, sample] of samples) {
    if (key.startsWith(`${name}{`) && key.includes(`${label}="${value}"`)) sum += sample;
  }
  return sum;
}
