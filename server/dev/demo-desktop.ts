import os from 'node:os';
import { type HostCommands, type HostConnection, type MessageStream, StreamError } from '../../client/index.ts';
import { randomFile, Tally } from './demo-file.ts';
import { type DemoAnswer, type DemoRequest, demoRequest } from './demo-protocol.ts';

type Handlers = { [A in DemoRequest['ask']]: (request: Extract<DemoRequest, { ask: A }>) => Promise<void> };

/** The app on the desktop: answers one phone for as long as it is connected. */
export async function serveDemoPhone(connection: HostConnection, commands: HostCommands): Promise<void> {
  const { stream } = connection;
  const handlers = desktopHandlers(connection, commands);
  try {
    for await (const message of stream) {
      const request = typeof message === 'string' ? demoRequest.safeParse(JSON.parse(message)) : null;
      if (!request?.success) {
        await answer(stream, { answer: 'error', message: 'not understood' });
        continue;
      }
      const handle = handlers[request.data.ask] as (request: DemoRequest) => Promise<void>;
      await handle(request.data).catch((error: Error) => answer(stream, { answer: 'error', message: error.message }));
    }
  } catch (error) {
    // The phone went away in the middle of an answer: it comes back on a stream of its own.
    if (!(error instanceof StreamError)) throw error;
  }
}

function desktopHandlers({ stream, connId, relayDeviceId = '' }: HostConnection, commands: HostCommands): Handlers {
  return {
    async provision({ reqId, newResumeTokenHash }) {
      const authorization = { mode: 'relay-basis', basisConnId: connId } as const;
      const installed = await commands.installCredential({ reqId, relayDeviceId, newResumeTokenHash, authorization });
      await answer(stream, {
        answer: 'provision',
        version: installed.currentVersion,
        expiresAt: installed.resumeExpiresAt,
      });
    },
    async confirm({ reqId }) {
      const { renewed, resumeExpiresAt } = await commands.confirmResume(connId, reqId);
      await answer(stream, { answer: 'confirm', renewed, expiresAt: resumeExpiresAt });
    },
    run: ({ command }) => answer(stream, { answer: 'run', output: runCommand(command) }),
    ping: ({ payload }) => answer(stream, { answer: 'ping', payload }),
    async download({ bytes }) {
      const tally = new Tally();
      for (const chunk of randomFile(bytes)) {
        tally.add(chunk);
        await stream.send(chunk);
      }
      await answer(stream, { answer: 'file', bytes: tally.bytes, sha256: tally.sha256() });
    },
    async upload({ bytes }) {
      const tally = new Tally();
      while (tally.bytes < bytes) {
        const chunk = await stream.receive();
        if (chunk === null) return;
        if (typeof chunk === 'string') throw new Error('text in the middle of a file');
        tally.add(chunk);
      }
      await answer(stream, { answer: 'file', bytes: tally.bytes, sha256: tally.sha256() });
    },
  };
}

async function answer(stream: MessageStream, message: DemoAnswer): Promise<void> {
  await stream.send(JSON.stringify(message));
}

/** As much of a shell as is safe to show: it starts nothing. */
const COMMANDS: Readonly<Record<string, (argument: string) => string>> = {
  echo: (argument) => argument,
  uname: () => `${os.type()} ${os.release()} ${os.arch()}`,
  date: () => new Date().toISOString(),
  help: () => `commands: ${Object.keys(COMMANDS).join(', ')}`,
};

export function runCommand(line: string): string {
  const [word = '', ...rest] = line.trim().split(/\s+/);
  const command = Object.hasOwn(COMMANDS, word) ? COMMANDS[word] : undefined;
  return command ? command(rest.join(' ')) : `${word}: command not found`;
}
