import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../server/package-root.ts';

export const functionsFolder: string = path.join(packageRoot, 'db', 'functions');

export interface FunctionFile {
  /** Relative to db/functions, as an include line names it. */
  name: string;
  text: string;
}

export const functionFiles: readonly FunctionFile[] = readdirSync(functionsFolder, {
  recursive: true,
  encoding: 'utf8',
})
  .filter((name) => name.endsWith('.sql'))
  .map((name) => name.split(path.sep).join('/'))
  .sort()
  .map((name) => ({ name, text: readFileSync(path.join(functionsFolder, name), 'utf8') }));
