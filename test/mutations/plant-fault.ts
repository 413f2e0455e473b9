import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Plugin } from 'vite';
import { packageRoot } from '../../server/package-root.ts';

/** A fault in a TypeScript file, relative to the package: the text `from`, which stands there once, becomes `to`. */
export interface TypeScriptFault {
  file: string;
  from: string;
  to: string;
}

/** Where vitest finds the fault it is to run with: the files on disk stay as they are. */
export const FAULT_VARIABLE = 'ORCA_RELAY_TEST_FAULT';

export const readFault = (text: string | undefined): TypeScriptFault | null => (text ? JSON.parse(text) : null);

export const sourceOf = (file: string): string => readFileSync(path.join(packageRoot, file), 'utf8');

/** Gives the tests the file with the fault in it. */
export function plantFault({ file, from, to }: TypeScriptFault): Plugin {
  const id = path.join(packageRoot, file);
  return {
    name: 'plant-fault',
    enforce: 'pre',
    load: (asked) => (asked.split('?')[0] === id ? sourceOf(file).split(from).join(to) : null),
  };
}
