import { createHash } from 'node:crypto';
import nacl from 'tweetnacl';
import { describe, expect, test } from 'vitest';
import {
  answerChallenge,
  computeProof,
  deriveRelayHostId,
  encodeChallenge,
  encodeTranscript,
  type HostProofFacts,
  issueChallenge,
  proofMatches,
} from '../../contract/host-proof.ts';
import { agreeNatively, WeakKeyError } from '../../server/cell/key-agreement.ts';

const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

const vector: HostProofFacts = {
  relayOrigin: 'https://relay.onorca.dev',
  relayEphemeralPublicKey: new Uint8Array(32).fill(1),
  challengeNonce: new Uint8Array(24).fill(4),
  challengeId: 'challenge-1',
  issuedAt: 1_700_000_000_000,
  expiresAt: 1_700_000_010_000,
  userId: 'user-1',
  profileId: 'profile-1',
  organizationId: 'org-1',
  relayHostId: 'abcdefghijklmnop',
  hostPublicKey: new Uint8Array(32).fill(2),
  assignmentEpoch: 7,
  previousGeneration: 6,
  resumeRequested: true,
};

describe('the published vector', () => {
  const transcript = encodeTranscript(vector);
  const secret = new Uint8Array(32).fill(3);

  test('transcript', () => {
    expect(transcript.length).toBe(537);
    expect(sha256(transcript)).toBe('ecfb09ecc2a76d094f040f4e7de9baa4aa2eb81324a0edcb6cbfb90e47a9274d');
  });

  test('plaintext', () => {
    const plain = encodeChallenge(transcript, secret);
    expect(plain.length).toBe(537 + 65);
    expect(sha256(plain)).toBe('c2c1b70a7ab436bd40ad9e657277ef7add977d3c23b33122333ad8744d8c0c0b');
  });

  test('proof', () => {
    expect(computeProof(transcript, secret)).toBe('V7RUpNi2g3nIvv5ZL6l69ZlsB1fhP2ynFTBxzaapLmk=');
  });

  test('host id', () => {
    expect(deriveRelayHostId(new Uint8Array(32).fill(2))).toBe('dYd7tB05O1-4RVzm');
  });
});

describe('challenge and answer', () => {
  const host = nacl.box.keyPair();
  const now = 1_800_000_000_000;
  const expected = {
    relayOrigin: 'http://127.0.0.1:8081',
    userId: 'user-1',
    profileId: 'profile-1',
    organizationId: null,
    relayHostId: deriveRelayHostId(host.publicKey),
    hostPublicKey: host.publicKey,
    assignmentEpoch: 3,
    previousGeneration: undefined,
    resumeRequested: false,
  };
  const issue = () => issueChallenge({ ...expected, challengeId: 'c', issuedAt: now });

  test('the host with the key answers what the cell expects', () => {
    const { frame, expectedProofB64 } = issue();
    const answer = answerChallenge(frame, host.secretKey, expected, now + 5_000);
    expect(answer.ok && proofMatches(expectedProofB64, answer.proofB64)).toBe(true);
  });

  test('so it does when the cell borrows its key agreement', () => {
    const { frame, expectedProofB64 } = issueChallenge({ ...expected, challengeId: 'c', issuedAt: now }, agreeNatively);
    const answer = answerChallenge(frame, host.secretKey, expected, now);
    expect(answer.ok && proofMatches(expectedProofB64, answer.proofB64)).toBe(true);
  });

  test.each([
    ['zero', new Uint8Array(32)],
    ['one', Uint8Array.of(1, ...new Uint8Array(31))],
  ])('a key of low order (%s) is refused: the secret would be known to all', (_, weak) => {
    expect(() => agreeNatively(weak)).toThrow(WeakKeyError);
  });

  test('another key cannot open it', () => {
    const answer = answerChallenge(issue().frame, nacl.box.keyPair().secretKey, expected, now);
    expect(answer).toEqual({ ok: false, refusal: 'unreadable' });
  });

  test.each([
    ['relayOrigin', 'http://127.0.0.1:8082'],
    ['userId', 'user-2'],
    ['profileId', 'profile-2'],
    ['organizationId', 'org-1'],
    ['assignmentEpoch', 4],
    ['previousGeneration', 1],
    ['resumeRequested', true],
  ])('a host that believes another %s refuses', (field, value) => {
    const answer = answerChallenge(issue().frame, host.secretKey, { ...expected, [field]: value }, now);
    expect(answer).toEqual({ ok: false, refusal: 'facts' });
  });

  test.each([
    ['31 s early', -31_000],
    ['31 s after its end', 41_001],
  ])('a clock that is %s refuses', (_, offset) => {
    const answer = answerChallenge(issue().frame, host.secretKey, expected, now + offset);
    expect(answer).toEqual({ ok: false, refusal: 'clock' });
  });

  test('a frame whose end differs from the boxed one refuses', () => {
    const { frame } = issue();
    const answer = answerChallenge({ ...frame, expiresAt: frame.expiresAt + 1 }, host.secretKey, expected, now);
    expect(answer).toEqual({ ok: false, refusal: 'clock' });
  });
});
