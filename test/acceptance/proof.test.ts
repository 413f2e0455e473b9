import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import {
  challengePlaintext,
  decodeTranscript,
  encodeTranscript,
  hostIdOf,
  proofInput,
  proofOf,
  transcriptFields,
} from './support/proof.ts';

const VECTOR = {
  relayOrigin: 'https://relay.onorca.dev',
  relayEphemeralPublicKey: Buffer.alloc(32, 1),
  challengeNonce: Buffer.alloc(24, 4),
  challengeId: 'challenge-1',
  issuedAt: 1_700_000_000_000,
  expiresAt: 1_700_000_010_000,
  userId: 'user-1',
  profileId: 'profile-1',
  organizationId: 'org-1',
  relayHostId: 'abcdefghijklmnop',
  hostPublicKey: Buffer.alloc(32, 2),
  assignmentEpoch: 7,
  previousGeneration: 6,
  resumeRequested: true,
};

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

test('the independent proof matches the vector of wire 1.8 to the byte', () => {
  const fields = transcriptFields(VECTOR);
  const transcript = encodeTranscript(fields);
  const secret = Buffer.alloc(32, 3);
  const plaintext = challengePlaintext(transcript, secret);

  expect(transcript.length).toBe(537);
  expect(sha256(transcript)).toBe('ecfb09ecc2a76d094f040f4e7de9baa4aa2eb81324a0edcb6cbfb90e47a9274d');
  expect(plaintext.length).toBe(537 + 65);
  expect(sha256(plaintext)).toBe('c2c1b70a7ab436bd40ad9e657277ef7add977d3c23b33122333ad8744d8c0c0b');
  expect(proofInput(transcript).length).toBe(537 + 29);
  expect(proofOf(transcript, secret)).toBe('V7RUpNi2g3nIvv5ZL6l69ZlsB1fhP2ynFTBxzaapLmk=');
  expect(hostIdOf(VECTOR.hostPublicKey)).toBe('dYd7tB05O1-4RVzm');
  expect(decodeTranscript(transcript)).toEqual(fields);
});
