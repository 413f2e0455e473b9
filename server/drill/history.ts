import type { Ask } from '../operator/mode-steps.ts';

/** What the change log of a drill says, held against P1 and P2. */

export interface MoveCount {
  rule: string;
  hosts: number;
  moves: number;
}

/** Moves by rule of hosts that left a cell after a change, the ledger's among them as `recorded`. */
export async function movesOff(ask: Ask, cellId: string, sinceId: number): Promise<MoveCount[]> {
  return ask<MoveCount>(
    `select coalesce(c.rule, c.kind) as rule, count(distinct c.host) as hosts, count(*) as moves
     from relay_v1.recent_changes c
     where c.from_cell = $1 and c.to_cell <> $1 and c.kind in ('moved', 'recorded') and c.id > $2
     group by 1 order by 1`,
    [cellId, sinceId],
  );
}

export async function latestChange(ask: Ask): Promise<number> {
  const [row] = await ask<{ id: number }>('select coalesce(max(id), 0) as id from relay_v1.recent_changes');
  return row?.id ?? 0;
}
