import pg from 'pg';
import { serve } from '../support/server-process.ts';

/** Connections that LISTEN to the doorbell and do nothing else. */
const [url = '', count = '0'] = process.argv.slice(2);

await Promise.all(
  Array.from({ length: Number(count) }, async () => {
    const client = new pg.Client({ connectionString: url });
    client.on('error', () => undefined);
    await client.connect();
    await client.query('listen relay_doorbell');
  }),
);
serve(0);
