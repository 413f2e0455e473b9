import {
  createPhone,
  newResumeToken,
  type PhoneEndpoint,
  pairWithInvite,
  type RelayInvite,
  type RelayPhone,
} from '../index.ts';

/** What a phone stores. The token is a secret; the endpoint may change. */
export interface Pairing {
  directorOrigins: string[];
  relayHostId: string;
  endpoint: PhoneEndpoint;
  resumeToken: string;
}

/** Once, with what the desktop showed as a QR code. */
export async function pairPhone(invite: RelayInvite): Promise<Pairing> {
  const { stream, endpoint } = await pairWithInvite(invite);
  const { token, hash } = newResumeToken();
  await stream.send(JSON.stringify({ ask: 'provision', hash }));
  if ((await stream.receive()) !== 'provisioned') throw new Error('the desktop did not install the credential');
  stream.close();
  const { directorUrl, relayHostId } = invite;
  return { directorOrigins: [directorUrl], relayHostId, endpoint, resumeToken: token };
}

/** From then on: connects, and comes back whatever happens. */
export function keepConnected(pairing: Pairing, save: (pairing: Pairing) => void): RelayPhone {
  const { directorOrigins, relayHostId, endpoint, resumeToken } = pairing;
  const phone = createPhone({
    directorOrigins,
    relayHostId,
    endpoint,
    resumeTokens: [resumeToken],
    async confirm({ stream }) {
      // An app's end-to-end handshake comes first; the phone always speaks first.
      await stream.send(JSON.stringify({ ask: 'confirm' }));
      if ((await stream.receive()) !== 'confirmed') throw new Error('not confirmed');
    },
  });
  phone.on('endpoint', (found) => save({ ...pairing, endpoint: found }));
  phone.on('credential-rejected', () => console.log('pair again'));
  phone.on('host-offline', ({ signedOut }) => console.log(signedOut ? 'signed out there' : 'the desktop is offline'));
  phone.start();
  return phone;
}
