import { createHost, newHostKeys, type RelayHost, selfHostedTokens } from '../index.ts';

/** A desktop that echoes what its phones say, and gives them the credential that they come back with. */
export function startDesktop(relayOrigin: string, selfHostedKey: string): RelayHost {
  const host = createHost({
    directorOrigins: [relayOrigin],
    // An app keeps the secret key and passes it to hostKeysFromSecret(): it is who this host is.
    keys: newHostKeys(),
    tokens: selfHostedTokens({ relayOrigin, selfHostedKey }),
    appVersion: '1.0.0',
    async onConnection({ connId, relayDeviceId = '', stream }) {
      for await (const message of stream) {
        const request = JSON.parse(String(message)) as { ask: string; hash: string; text: string };
        if (request.ask === 'provision') {
          await host.commands.installCredential({
            relayDeviceId,
            newResumeTokenHash: request.hash,
            authorization: { mode: 'relay-basis', basisConnId: connId },
          });
          await stream.send('provisioned');
        } else if (request.ask === 'confirm') {
          await host.commands.confirmResume(connId);
          await stream.send('confirmed');
        } else {
          await stream.send(request.text);
        }
      }
    },
  });
  host.on('online', ({ cellUrl }) => console.log(`reachable through ${cellUrl}`));
  host.on('retry', ({ reason, inMs }) => console.log(`offline (${reason}), next try in ${inMs} ms`));
  host.on('refused', ({ error }) => console.log(`the relay refuses this host: ${error}`));
  host.start();
  return host;
}
