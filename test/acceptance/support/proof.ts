/**
 * The host's side of the key proof (wire 1.8), written from the wire document alone with `node:crypto` and tweetnacl.
 * It shares no code with `contract/`, so that a mistake there shows as a failed handshake here.
 */
import { createHash, createHmac } from 'node:crypto';
import nacl from 'tweetnacl';

const PROTOCOL = 'orca-relay-host-proof/v1';
const CHALLENGE_PREFIX = Buffer.from('orca-relay-host-challenge/v1\0', 'latin1');
const ACK_PREFIX = Buffer.from('orca-relay-host-proof/v1\0ack\0', 'latin1');
const SECRET_BYTES = 32;

export const FIELD_NAMES = [
  'protocol',
  'version',
  'relayOrigin',
  'relayEphemeralPublicKey',
  'challengeNonce',
  'challengeId',
  'issuedAt',
  'expiresAt',
  'userId',
  'profileId',
  'organizationId',
  'relayHostId',
  'hostPublicKey',
  'assignmentEpoch',
  'previousGeneration',
  'resumeRequested',
] as const;

export type FieldName = (typeof FIELD_NAMES)[number];
export type Transcript = Record<FieldName, Buffer>;

export interface TranscriptInput {
  relayOrigin: string;
  relayEphemeralPublicKey: Uint8Array;
  challengeNonce: Uint8Array;
  challengeId: string;
  issuedAt: number;
  expiresAt: number;
  userId: string;
  profileId: string;
  organizationId: string | null;
  relayHostId: string;
  hostPublicKey: Uint8Array;
  assignmentEpoch: number;
  previousGeneration: number | null;
  resumeRequested: boolean;
}

export function u64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(value));
  return bytes;
}

function sized(bytes: Buffer): Buffer[] {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return [length, bytes];
}

export function transcriptFields(input: TranscriptInput): Transcript {
  return {
    protocol: Buffer.from(PROTOCOL),
    version: Buffer.of(1),
    relayOrigin: Buffer.from(input.relayOrigin),
    relayEphemeralPublicKey: Buffer.from(input.relayEphemeralPublicKey),
    challengeNonce: Buffer.from(input.challengeNonce),
    challengeId: Buffer.from(input.challengeId),
    issuedAt: u64(input.issuedAt),
    expiresAt: u64(input.expiresAt),
    userId: Buffer.from(input.userId),
    profileId: Buffer.from(input.profileId),
    organizationId: Buffer.from(input.organizationId ?? ''),
    relayHostId: Buffer.from(input.relayHostId),
    hostPublicKey: Buffer.from(input.hostPublicKey),
    assignmentEpoch: u64(input.assignmentEpoch),
    previousGeneration: input.previousGeneration === null ? Buffer.alloc(0) : u64(input.previousGeneration),
    resumeRequested: Buffer.of(input.resumeRequested ? 1 : 0),
  };
}

export function encodeTranscript(fields: Transcript): Buffer {
  return Buffer.concat(FIELD_NAMES.flatMap((name) => [...sized(Buffer.from(name)), ...sized(fields[name])]));
}

/** Reads a transcript back, and throws unless it is exactly the 16 fields in order with nothing after them. */
export function decodeTranscript(bytes: Buffer): Transcript {
  let at = 0;
  const take = (): Buffer => {
    const length = bytes.readUInt32BE(at);
    const value = bytes.subarray(at + 4, at + 4 + length);
    if (value.length !== length) throw new Error('transcript ends early');
    at += 4 + length;
    return value;
  };
  const fields: Partial<Transcript> = {};
  for (const expected of FIELD_NAMES) {
    const name = take().toString();
    if (name !== expected) throw new Error(`transcript field ${name} where ${expected} is due`);
    fields[expected] = take();
  }
  if (at !== bytes.length) throw new Error('transcript has more than its 16 fields');
  return fields as Transcript;
}

export function challengePlaintext(transcript: Buffer, secret: Uint8Array): Buffer {
  return Buffer.concat([CHALLENGE_PREFIX, ...sized(transcript), secret]);
}

export function proofInput(transcript: Buffer): Buffer {
  return Buffer.concat([ACK_PREFIX, transcript]);
}

export function proofOf(transcript: Buffer, secret: Uint8Array): string {
  return createHmac('sha256', secret).update(proofInput(transcript)).digest('base64');
}

/** First 16 characters of base64url(SHA-256(public key)). */
export function hostIdOf(publicKey: Uint8Array): string {
  return createHash('sha256').update(publicKey).digest('base64url').slice(0, 16);
}

export interface ChallengeFrame {
  challengeId: string;
  relayEphemeralPublicKeyB64: string;
  nonceB64: string;
  ciphertextB64: string;
  expiresAt: number;
}

export interface OpenedChallenge {
  fields: Transcript;
  transcript: Buffer;
  secret: Buffer;
  proofB64: string;
}

/** Opens a challenge with the host's secret key. Throws when the box or its plaintext is not what wire 1.8 says. */
export function openChallenge(frame: ChallengeFrame, secretKey: Uint8Array): OpenedChallenge {
  const opened = nacl.box.open(
    Buffer.from(frame.ciphertextB64, 'base64'),
    Buffer.from(frame.nonceB64, 'base64'),
    Buffer.from(frame.relayEphemeralPublicKeyB64, 'base64'),
    secretKey,
  );
  if (opened === null) throw new Error('the challenge does not open with this key');
  const plaintext = Buffer.from(opened);
  if (!plaintext.subarray(0, CHALLENGE_PREFIX.length).equals(CHALLENGE_PREFIX)) throw new Error('challenge prefix');
  const body = plaintext.subarray(CHALLENGE_PREFIX.length);
  const length = body.readUInt32BE(0);
  const transcript = body.subarray(4, 4 + length);
  const secret = body.subarray(4 + length);
  if (secret.length !== SECRET_BYTES) throw new Error(`challenge secret of ${secret.length} bytes`);
  return { fields: decodeTranscript(transcript), transcript, secret, proofB64: proofOf(transcript, secret) };
}
