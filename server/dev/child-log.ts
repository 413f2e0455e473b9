import { closeSync, openSync, renameSync, writeSync } from 'node:fs';
import path from 'node:path';
import { Problem } from '../problem.ts';
import { unwritable } from './postgres-user.ts';

const MAX_LOG_BYTES = 16 * 1024 * 1024;

export interface LogFile {
  file: string;
  write(name: string, line: string): void;
  close(): void;
}

/** Every line of every child, as it came; the file before the last one is kept when it grows too long. */
export function openLogFile(dataDir: string): LogFile {
  const file = path.join(dataDir, 'up.log');
  let descriptor = openFor(file);
  let size = 0;
  return {
    file,
    write(name, line) {
      const text = `${name}\t${line}\n`;
      size += text.length;
      if (size > MAX_LOG_BYTES) {
        closeSync(descriptor);
        renameSync(file, `${file}.1`);
        descriptor = openFor(file);
        size = text.length;
      }
      writeSync(descriptor, text);
    },
    close: () => closeSync(descriptor),
  };
}

function openFor(file: string): number {
  try {
    return openSync(file, 'w', 0o600);
  } catch (error) {
    throw new Problem(unwritable(path.dirname(file), error));
  }
}

export type Paint = (style: 'dim' | 'bold' | 'red' | 'yellow' | 'cyan', text: string) => string;

const CODES = { dim: 2, bold: 1, red: 31, yellow: 33, cyan: 36 } as const;

/** Colours only for a terminal whose owner wants them. */
export function painter(stream: NodeJS.WriteStream, env: NodeJS.ProcessEnv): Paint {
  const wanted = stream.isTTY && !env.NO_COLOR;
  return (style, text) => (wanted ? `\u001b[${CODES[style]}m${text}\u001b[0m` : text);
}

const NAME_WIDTH = 9;
const LEVEL_STYLE = { warn: 'yellow', error: 'red', fatal: 'red' } as const;
const HIDDEN = new Set(['time', 'level', 'event', 'role', 'cellId', 'msg']);

export interface ReadableLine {
  text: string;
  level: string;
  /** The same of two lines that say the same thing again. */
  what: string;
}

/** A child's JSON line for people: time, who, what, and the rest as `name=value`. Other text is passed on as it is. */
export function readableLine(name: string, line: string, paint: Paint): ReadableLine {
  const entry = parse(line);
  const who = paint('cyan', name.padEnd(NAME_WIDTH));
  if (!entry) return { text: `${who} ${line}`, level: 'error', what: `${name} ${line}` };
  const level = String(entry.level ?? 'info');
  const style = LEVEL_STYLE[level as keyof typeof LEVEL_STYLE];
  const what = String(entry.msg ?? entry.event ?? '').replace(/^orca_relay_/, '');
  const rest = Object.entries(entry)
    .filter(([key]) => !HIDDEN.has(key))
    .map(([key, value]) => `${key}=${inShort(value)}`)
    .join(' ');
  const time = String(entry.time ?? '').slice(11, 19);
  return {
    text: `${paint('dim', time)} ${who} ${style ? paint(style, what) : what} ${paint('dim', rest)}`.trimEnd(),
    level,
    what: `${name} ${what}`,
  };
}

function inShort(value: unknown): string {
  if (typeof value !== 'object' || value === null) return String(value);
  const { message } = value as { message?: unknown };
  return typeof message === 'string' ? `"${message}"` : JSON.stringify(value);
}

function parse(line: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}
