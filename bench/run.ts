import { readdir } from 'node:fs/promises';
import { availableParallelism, cpus } from 'node:os';
import { extname } from 'node:path';
import { type Bench, formatTable } from './table.ts';

/** `.js` once compiled, as `npm run bench` runs them: what is measured is the code that ships. */
const EXTENSION = extname(import.meta.filename);
const NOT_BENCHES = new Set(['run', 'table']);

async function listBenches(): Promise<string[]> {
  const entries = await readdir(import.meta.dirname, { withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && entry.name.endsWith(EXTENSION))
    .map((entry) => entry.name.slice(0, -EXTENSION.length))
    .filter((name) => !NOT_BENCHES.has(name))
    .sort();
}

async function load(name: string): Promise<Bench> {
  const { bench } = (await import(`./${name}${EXTENSION}`)) as { bench: Bench };
  return bench;
}

async function main(wanted: string[]): Promise<number> {
  const names = await listBenches();
  if (wanted.includes('--help')) {
    console.log('npm run bench [name…]: runs the named benches, or all of them\n');
    for (const name of names) console.log(`  ${name.padEnd(20)} ${(await load(name)).about}`);
    return 0;
  }
  const unknown = wanted.filter((name) => !names.includes(name));
  if (unknown.length > 0) {
    console.error(`no such bench: ${unknown.join(', ')} (there are ${names.join(', ')})`);
    return 1;
  }
  const machine = `${cpus()[0]?.model.trim()}, ${availableParallelism()} cores, Node ${process.version}`;
  console.log(`${machine}, ${new Date().toISOString().slice(0, 10)}\n`);
  for (const name of wanted.length > 0 ? wanted : names) {
    for (const table of await (await load(name)).run()) console.log(`${formatTable(table)}\n`);
  }
  return 0;
}

// Addons and half-closed sockets may outlive the last bench by seconds.
process.exit(await main(process.argv.slice(2)));
