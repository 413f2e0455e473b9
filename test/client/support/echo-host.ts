import type { RelayTokenSource } from '../../../client/host-token.ts';
import { createHost, type HostConnection, type Ports, type RelayHost } from '../../../client/index.ts';
import type { Fleet } from '../../acceptance/support/fleet.ts';
import { type HostIdentity, newIdentity } from '../../acceptance/support/identity.ts';
import { fromElsewhere } from './recording-ports.ts';

/** The tokens of an account server that this fleet trusts. */
export function fleetTokens(fleet: Fleet, identity: HostIdentity): RelayTokenSource {
  return async () => {
    const expiresAt = Math.floor(fleet.clock.wallNow() / 1_000) + 300;
    return { relayToken: await fleet.issuer.token(identity, { expiresAt }), expiresAt: expiresAt * 1_000 };
  };
}

export interface EchoHost {
  host: RelayHost;
  identity: HostIdentity;
  connections: HostConnection[];
}

/**
 * A host of the reference client's whose app answers every message with the same one, and three texts in its own way:
 * `provision <hash>` installs the phone's credential, `confirm` confirms its resume, `bye` ends the connection.
 */
export async function echoHost(fleet: Fleet, ports: Partial<Ports> = {}, identity = newIdentity()): Promise<EchoHost> {
  const connections: HostConnection[] = [];
  const host = createHost(
    {
      directorOrigins: fleet.directors.map((director) => director.origin),
      keys: { publicKey: identity.publicKey, secretKey: identity.secretKey },
      tokens: fleetTokens(fleet, identity),
      appVersion: 'test',
      async onConnection(connection) {
        connections.push(connection);
        const { stream, connId, relayDeviceId = '' } = connection;
        for await (const message of stream) {
          const [word, argument = ''] = typeof message === 'string' ? message.split(' ') : [];
          if (word === 'provision') {
            const authorization = { mode: 'relay-basis', basisConnId: connId } as const;
            const install = { relayDeviceId, newResumeTokenHash: argument, authorization };
            await stream.send(JSON.stringify(await host.commands.installCredential(install)));
          } else if (word === 'confirm') {
            await stream.send(JSON.stringify(await host.commands.confirmResume(connId)));
          } else if (word === 'bye') {
            stream.close();
          } else {
            await stream.send(message);
          }
        }
      },
    },
    { openSocket: fromElsewhere(), ...ports },
  );
  host.start();
  await host.online(AbortSignal.timeout(40_000));
  return { host, identity, connections };
}
