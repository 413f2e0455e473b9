import { hsalsa } from '@noble/ciphers/salsa.js';
import { hmac } from '@noble/hashes/hmac.js';
import { sha256 } from '@noble/hashes/sha2.js';
import { concatBytes, randomBytes, utf8ToBytes } from '@noble/hashes/utils.js';
import { base64, base64urlnopad } from '@scure/base';
import nacl from 'tweetnacl';
import { LIMITS } from './limits.ts';

/**
 * Proof that a host holds the X25519 key its id is derived from: the cell boxes a random secret, together with everything
 * both sides believe about this session, to the host's public key; the host answers with a MAC keyed by that secret.
 */
const PROTOCOL = 'orca-relay-host-proof/v1';
const CHALLENGE_LABEL = utf8ToBytes('orca-relay-host-challenge/v1\0');
const MAC_LABEL = utf8ToBytes(`${PROTOCOL}\0ack\0`);
const SECRET_BYTES = 32;
const NONCE_BYTES = 24;
/** How far a host lets its own clock differ from the cell's. */
const CLOCK_TOLERANCE_MS = 30_000;

/** What the transcript binds. Keys and nonces are raw bytes, times epoch milliseconds. */
export interface HostProofFacts {
  /** The cell's public origin, as the host dialled it. */
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
  /** Undefined when the hello named none. */
  previousGeneration: number | undefined;
  /** The cell's own verdict: a live or orphaned session with the hello's secret exists. */
  resumeRequested: boolean;
}

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
type FieldName = (typeof FIELD_NAMES)[number];

/** First 16 characters of base64url(SHA-256(public key)). */
export function deriveRelayHostId(hostPublicKey: Uint8Array): string {
  return base64urlnopad.encode(sha256(hostPublicKey)).slice(0, 16);
}

export function encodeTranscript(facts: HostProofFacts): Uint8Array {
  const values: Record<FieldName, Uint8Array> = {
    protocol: utf8ToBytes(PROTOCOL),
    version: Uint8Array.of(1),
    relayOrigin: utf8ToBytes(facts.relayOrigin),
    relayEphemeralPublicKey: facts.relayEphemeralPublicKey,
    challengeNonce: facts.challengeNonce,
    challengeId: utf8ToBytes(facts.challengeId),
    issuedAt: u64(facts.issuedAt),
    expiresAt: u64(facts.expiresAt),
    userId: utf8ToBytes(facts.userId),
    profileId: utf8ToBytes(facts.profileId),
    organizationId: utf8ToBytes(facts.organizationId ?? ''),
    relayHostId: utf8ToBytes(facts.relayHostId),
    hostPublicKey: facts.hostPublicKey,
    assignmentEpoch: u64(facts.assignmentEpoch),
    previousGeneration: facts.previousGeneration === undefined ? new Uint8Array() : u64(facts.previousGeneration),
    resumeRequested: Uint8Array.of(facts.resumeRequested ? 1 : 0),
  };
  return concatBytes(
    ...FIELD_NAMES.flatMap((name) => [...lengthPrefixed(utf8ToBytes(name)), ...lengthPrefixed(values[name])]),
  );
}

/** Plaintext of the box: label, transcript with its length, then the secret. */
export function encodeChallenge(transcript: Uint8Array, secret: Uint8Array): Uint8Array {
  return concatBytes(CHALLENGE_LABEL, u32(transcript.length), transcript, secret);
}

/** The MAC that the host sends back, in `key32` form. */
export function computeProof(transcript: Uint8Array, secret: Uint8Array): string {
  return base64.encode(hmac(sha256, secret, concatBytes(MAC_LABEL, transcript)));
}

/** A challenge on its way out: the frame's fields, and what the cell keeps to check the answer. */
export interface IssuedChallenge {
  frame: {
    challengeId: string;
    relayEphemeralPublicKeyB64: string;
    nonceB64: string;
    ciphertextB64: string;
    expiresAt: number;
  };
  expectedProofB64: string;
}

/**
 * Agrees on a secret with the holder of an X25519 key, from a fresh key pair of its own. All of a challenge's cost is here,
 * so that a platform with X25519 of its own can lend it.
 */
export type KeyAgreement = (theirPublicKey: Uint8Array) => { publicKey: Uint8Array; sharedSecret: Uint8Array };

const agreeInJavaScript: KeyAgreement = (theirPublicKey) => {
  const { publicKey, secretKey } = nacl.box.keyPair();
  return { publicKey, sharedSecret: nacl.scalarMult(secretKey, theirPublicKey) };
};

/** @param known `issuedAt` in epoch milliseconds of the cell's wall clock: the host compares it with its own. */
export function issueChallenge(
  known: Omit<HostProofFacts, 'relayEphemeralPublicKey' | 'challengeNonce' | 'expiresAt'>,
  agree: KeyAgreement = agreeInJavaScript,
): IssuedChallenge {
  const ephemeral = agree(known.hostPublicKey);
  const nonce = randomBytes(NONCE_BYTES);
  const secret = randomBytes(SECRET_BYTES);
  const expiresAt = known.issuedAt + LIMITS.challengeWindowMs;
  const transcript = encodeTranscript({
    ...known,
    relayEphemeralPublicKey: ephemeral.publicKey,
    challengeNonce: nonce,
    expiresAt,
  });
  const box = nacl.secretbox(encodeChallenge(transcript, secret), nonce, boxKey(ephemeral.sharedSecret));
  return {
    frame: {
      challengeId: known.challengeId,
      relayEphemeralPublicKeyB64: base64.encode(ephemeral.publicKey),
      nonceB64: base64.encode(nonce),
      ciphertextB64: base64.encode(box),
      expiresAt,
    },
    expectedProofB64: computeProof(transcript, secret),
  };
}

const SIGMA = new Uint32Array(utf8ToBytes('expand 32-byte k').buffer);
const NO_NONCE = new Uint32Array(4);

/** What NaCl's box makes of the shared secret: HSalsa20 of it. */
function boxKey(sharedSecret: Uint8Array): Uint8Array {
  const key = new Uint32Array(8);
  hsalsa(SIGMA, new Uint32Array(sharedSecret.slice().buffer), NO_NONCE, key);
  return new Uint8Array(key.buffer);
}

/** Compares in constant time. Both are `key32` texts. */
export function proofMatches(expectedB64: string, givenB64: string): boolean {
  const expected = base64.decode(expectedB64);
  const given = base64.decode(givenB64);
  return expected.length === given.length && nacl.verify(expected, given);
}

export type ChallengeRefusal = 'unreadable' | 'fields' | 'clock' | 'facts';

/** What a host expects the cell to bind, checked before it answers. */
export type ExpectedFacts = Omit<
  HostProofFacts,
  'relayEphemeralPublicKey' | 'challengeNonce' | 'challengeId' | 'issuedAt' | 'expiresAt'
>;

/**
 * The host's side: opens the challenge, checks it field by field against what the host knows, and answers.
 * @param now epoch milliseconds of the host's wall clock
 */
export function answerChallenge(
  frame: IssuedChallenge['frame'],
  hostSecretKey: Uint8Array,
  expected: ExpectedFacts,
  now: number,
): { ok: true; proofB64: string } | { ok: false; refusal: ChallengeRefusal } {
  const ephemeralKey = base64.decode(frame.relayEphemeralPublicKeyB64);
  const nonce = base64.decode(frame.nonceB64);
  const plain = nacl.box.open(base64.decode(frame.ciphertextB64), nonce, ephemeralKey, hostSecretKey);
  const opened = plain && splitChallenge(plain);
  if (!opened) return { ok: false, refusal: 'unreadable' };
  const fields = decodeTranscript(opened.transcript);
  if (!fields) return { ok: false, refusal: 'fields' };
  const issuedAt = readU64(fields.issuedAt);
  const expiresAt = readU64(fields.expiresAt);
  if (issuedAt === null || expiresAt === null) return { ok: false, refusal: 'fields' };
  const inTime =
    issuedAt <= now + CLOCK_TOLERANCE_MS &&
    expiresAt >= now - CLOCK_TOLERANCE_MS &&
    expiresAt - issuedAt <= LIMITS.challengeWindowMs &&
    expiresAt === frame.expiresAt;
  if (!inTime) return { ok: false, refusal: 'clock' };
  const own = encodeTranscript({
    ...expected,
    relayEphemeralPublicKey: ephemeralKey,
    challengeNonce: nonce,
    challengeId: frame.challengeId,
    issuedAt,
    expiresAt,
  });
  if (!equalBytes(own, opened.transcript)) return { ok: false, refusal: 'facts' };
  return { ok: true, proofB64: computeProof(opened.transcript, opened.secret) };
}

function splitChallenge(plain: Uint8Array): { transcript: Uint8Array; secret: Uint8Array } | null {
  const head = CHALLENGE_LABEL.length;
  if (plain.length < head + 4 || !equalBytes(plain.subarray(0, head), CHALLENGE_LABEL)) return null;
  const length = readU32(plain, head);
  if (plain.length !== head + 4 + length + SECRET_BYTES) return null;
  return { transcript: plain.subarray(head + 4, head + 4 + length), secret: plain.subarray(head + 4 + length) };
}

/** Exactly the sixteen fields, in order; null otherwise. */
function decodeTranscript(bytes: Uint8Array): Record<FieldName, Uint8Array> | null {
  const fields = {} as Record<FieldName, Uint8Array>;
  let at = 0;
  const next = (): Uint8Array | null => {
    if (at + 4 > bytes.length) return null;
    const end = at + 4 + readU32(bytes, at);
    if (end > bytes.length) return null;
    const part = bytes.subarray(at + 4, end);
    at = end;
    return part;
  };
  for (const name of FIELD_NAMES) {
    const label = next();
    const value = next();
    if (!label || !value || !equalBytes(label, utf8ToBytes(name))) return null;
    fields[name] = value;
  }
  return at === bytes.length ? fields : null;
}

function lengthPrefixed(bytes: Uint8Array): [Uint8Array, Uint8Array] {
  return [u32(bytes.length), bytes];
}

function u32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value);
  return bytes;
}

function u64(value: number): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(value));
  return bytes;
}

function readU32(bytes: Uint8Array, at: number): number {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(at);
}

function readU64(bytes: Uint8Array): number | null {
  if (bytes.length !== 8) return null;
  const value = new DataView(bytes.buffer, bytes.byteOffset, 8).getBigUint64(0);
  return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : null;
}

/** For public bytes only: it leaks where they differ. */
function equalBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}
