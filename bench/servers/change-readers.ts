import pg from 'pg';
import { serve } from '../support/server-process.ts';

/** Reads the change log as a fleet does: each cell what concerns it once a second, each director everything every 250 ms. */
const [url = '', cells = '0', directors = '0'] = process.argv.slice(2);

async function read(cellId: string | null, everyMs: number): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => undefined);
  await client.connect();
  let cursor: unknown = null;
  let busy = false;
  setTimeout(() => {
    setInterval(async () => {
      if (busy) return;
      busy = true;
      const text = 'select relay_v1.changes_since(cursor => $1, cell_id => $2, max_rows => 500) as page';
      for (let more = true; more; ) {
        const { rows } = await client.query({ name: 'changes', text, values: [JSON.stringify(cursor), cellId] });
        cursor = rows[0].page.cursor;
        more = rows[0].page.more;
      }
      busy = false;
    }, everyMs);
  }, Math.random() * everyMs);
}

await Promise.all([
  ...Array.from({ length: Number(cells) }, (_, n) => read(`live-${n + 1}`, 1_000)),
  ...Array.from({ length: Number(directors) }, () => read(null, 250)),
]);
serve(0);
