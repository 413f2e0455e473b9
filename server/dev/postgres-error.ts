import { Problem } from '../problem.ts';

/** The private server cannot be started or used. */
export class PostgresError extends Problem {
  override readonly name = 'PostgresError';
}
