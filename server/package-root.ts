import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

function findRoot(from: string): string {
  for (let folder = from; ; folder = path.dirname(folder)) {
    if (existsSync(path.join(folder, 'package.json')) && existsSync(path.join(folder, 'db'))) return folder;
    if (path.dirname(folder) === folder) throw new Error(`no package.json beside a db folder above ${from}`);
  }
}

/** The folder of package.json and `db/`: the same from the sources and from `dist/`, where compiled files lie deeper. */
export const packageRoot: string = findRoot(path.dirname(fileURLToPath(import.meta.url)));

const manifest = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8')) as { version: string };

export const packageVersion: string = manifest.version;
