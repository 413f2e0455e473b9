import { createCipheriv, createHash, randomBytes } from 'node:crypto';
import { CHUNK_BYTES } from './demo-protocol.ts';

/** A file that exists only as it is read: incompressible bytes, no two the same, nothing kept in memory. */
export function* randomFile(bytes: number): Generator<Buffer, void, void> {
  const cipher = createCipheriv('aes-256-ctr', randomBytes(32), randomBytes(16));
  for (let left = bytes; left > 0; left -= CHUNK_BYTES) yield cipher.update(Buffer.alloc(Math.min(left, CHUNK_BYTES)));
}

/** Counts and digests what goes by. */
export class Tally {
  readonly #hash = createHash('sha256');
  #bytes = 0;

  add(chunk: Uint8Array): void {
    this.#hash.update(chunk);
    this.#bytes += chunk.byteLength;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Once, at the end. */
  sha256(): string {
    return this.#hash.digest('hex');
  }
}
