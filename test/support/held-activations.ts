import pg from 'pg';
import { eventually } from './eventually.ts';

const LOCK = 4_711;

export interface HeldActivations {
  /** Resolves when one waits. */
  waiting(): Promise<void>;
  /** All go on, and the function is as it was. */
  letGo(): Promise<void>;
}

/** Every `activate_control` from now on waits before it reads anything, for as long as the test likes. */
export async function holdActivations(database: {
  url: string;
  query(text: string): Promise<Record<string, unknown>[]>;
}): Promise<HeldActivations> {
  const [found] = await database.query("select pg_get_functiondef('relay_v1.activate_control'::regproc) as definition");
  const definition = String(found?.definition);
  await database.query(definition.replace(/\bactivate_control\b/g, 'activate_control_held'));
  // Replaced, not renamed: statements that are prepared already must come here too.
  await database.query(`
    create or replace function relay_v1.activate_control(user_id text, relay_host_id text, cell_id text,
      incarnation uuid, epoch bigint, generation bigint, inclusion_watermark bigint)
    returns relay_v1.activate_control_result language plpgsql security definer set lock_timeout = '0' as $$
    begin
      perform pg_advisory_xact_lock_shared(${LOCK});
      return relay_v1.activate_control_held($1, $2, $3, $4, $5, $6, $7);
    end $$`);
  const holder = new pg.Client({ connectionString: database.url });
  await holder.connect();
  await holder.query(`select pg_advisory_lock(${LOCK})`);
  return {
    async waiting() {
      await eventually(async () => {
        const waits = await database.query(
          `select 1 from pg_locks where locktype = 'advisory' and objid = ${LOCK} and not granted`,
        );
        if (waits.length === 0) throw new Error('no activation waits');
      });
    },
    async letGo() {
      await holder.end();
      await database.query(definition);
    },
  };
}
