/** The server cannot be started or used; the message is one line for the person at the terminal. */
export class PostgresError extends Error {
  override readonly name = 'PostgresError';
}
