import { createServer } from 'node:net';
import { Problem } from '../problem.ts';

const POLL_MS = 100;

/** A port that nobody has at this moment. */
export function freePort(host: string): Promise<number> {
  return probe(host, 0);
}

/** Waits until a port can be had. Throws a {@link Problem} that names it. */
export async function waitForPort(host: string, port: number, patienceMs: number): Promise<void> {
  const deadline = performance.now() + patienceMs;
  for (;;) {
    try {
      await probe(host, port);
      return;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code !== 'EADDRINUSE' || performance.now() >= deadline) throw new Problem(portProblem(port, code));
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }
}

function portProblem(port: number, code: string | undefined): string {
  if (code === 'EADDRINUSE') return `port ${port} is in use: choose other ports with --port`;
  if (code === 'EACCES') return `port ${port} may not be used by this user: choose other ports with --port`;
  return `port ${port} cannot be used (${code})`;
}

function probe(host: string, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen({ host, port, exclusive: true }, () => {
      const address = server.address() as { port: number };
      server.close(() => resolve(address.port));
    });
  });
}
