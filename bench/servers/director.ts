import { readConfig } from '../../server/config.ts';
import { startProcess } from '../../server/run.ts';
import { serve } from '../support/server-process.ts';

/** A whole director over the given database; it reads the seat feeds of the cells named. */
const [url = '', signingKey = '', feedCells = 'all'] = process.argv.slice(2);

const running = await startProcess(
  readConfig({
    ORCA_RELAY_ROLE: 'director',
    PORT: '0',
    ORCA_RELAY_HOST: '127.0.0.1',
    ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: signingKey,
    ORCA_RELAY_SHADOW_SEAT_FEED_CELLS: feedCells,
    ORCA_RELAY_LOG_LEVEL: 'error',
    DATABASE_URL: url,
  }),
);
serve(running.port);
