import { serverFrameBytes } from './frames.ts';

/** Numbered frames of one size, so that a reader of the bare stream sees a gap or a swap. */
export interface SequenceReader {
  readonly frames: number;
  readonly ordered: boolean;
  read(data: Buffer): void;
}

const HEADER_BYTES = 4;
const INDEX_BYTES = 4;

/** As a client sends it, with a mask of zeros: the payload needs no masking. 126–65535 bytes. */
export function sequencedFrame(index: number, payloadBytes: number): Buffer {
  const frame = Buffer.alloc(HEADER_BYTES + 4 + payloadBytes);
  frame.writeUInt16BE(0x82fe);
  frame.writeUInt16BE(payloadBytes, 2);
  frame.writeUInt32BE(index, HEADER_BYTES + 4);
  return frame;
}

/** As a server sends it. */
export function serverSequencedFrame(index: number, payloadBytes: number): Buffer {
  const frame = Buffer.alloc(HEADER_BYTES + payloadBytes);
  frame.writeUInt16BE(0x827e);
  frame.writeUInt16BE(payloadBytes, 2);
  frame.writeUInt32BE(index, HEADER_BYTES);
  return frame;
}

export function sequenceReader(payloadBytes: number): SequenceReader {
  const frameBytes = serverFrameBytes(payloadBytes);
  let frames = 0;
  let ordered = true;
  /** Within the frame that is being read. */
  let position = 0;
  let index = 0;
  const read = (data: Buffer) => {
    let at = 0;
    while (at < data.length) {
      if (position >= HEADER_BYTES && position < HEADER_BYTES + INDEX_BYTES) {
        index = index * 256 + data[at]!;
        at++;
        position++;
        continue;
      }
      const nextStop = position < HEADER_BYTES ? HEADER_BYTES : frameBytes;
      const step = Math.min(nextStop - position, data.length - at);
      at += step;
      position += step;
      if (position < frameBytes) continue;
      if (index !== frames) ordered = false;
      frames++;
      position = 0;
      index = 0;
    }
  };
  return {
    get frames() {
      return frames;
    },
    get ordered() {
      return ordered;
    },
    read,
  };
}
