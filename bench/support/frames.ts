import { randomBytes } from 'node:crypto';

/** A masked frame as a client sends it: the mask is drawn once, since a load client must not spend its time on masking. */
export function clientFrame(payload: Buffer, opcode: 1 | 2 = 2): Buffer {
  const mask = randomBytes(4);
  const masked = Buffer.from(payload);
  for (let i = 0; i < masked.length; i++) masked[i]! ^= mask[i & 3]!;
  return Buffer.concat([header(payload.length, opcode, 0x80), mask, masked]);
}

/** Bytes of a frame with so much payload as a server sends it. */
export function serverFrameBytes(payloadBytes: number): number {
  return header(payloadBytes, 2, 0).length + payloadBytes;
}

function header(length: number, opcode: number, maskBit: number): Buffer {
  const first = 0x80 | opcode;
  if (length < 126) return Buffer.from([first, maskBit | length]);
  if (length < 65_536) return Buffer.from([first, maskBit | 126, length >> 8, length & 255]);
  const long = Buffer.alloc(10);
  long.writeUInt8(first, 0);
  long.writeUInt8(maskBit | 127, 1);
  long.writeBigUInt64BE(BigInt(length), 2);
  return long;
}
