import type { Change } from '../sql-interface.ts';

/** The change log in words, for people who watch the fleet. */

/** Why a host was placed or moved: the rules of the decision table, and what operators and sweeps do (03). */
const RULES: Readonly<Record<string, string>> = {
  behind: 'its seat was behind what was promised',
  new: 'first seen',
  dormant: 'idle for a day',
  stranded: 'could not get back onto a cell that takes no hosts',
  'roll-isolated': 'its cell is set apart for a roll',
  'draining-home': 'its cell drains',
  headroom: 'its cell was full',
  'roll-replaced': 'the process of its cell was replaced',
  'dead-uncapped': 'its cell fell silent',
  fenced: 'its cell is fenced',
  'dead-reserve': 'its reserve cell is dead',
  evacuated: 'its cell is evacuated',
  'rolled-back': 'taken back, the move got nowhere',
  superseded: 'the cell it was moved to is fenced',
};

export type ToldChange = Pick<Change, 'kind' | 'rule' | 'from_cell' | 'to_cell' | 'detail'>;

/** What happened, in a few words; cells and host are shown beside it. */
export function changeWords({ kind, rule, from_cell, detail }: ToldChange): string {
  const said = (key: string) => String(detail?.[key] ?? 'unknown');
  const why = rule === null ? '' : `: ${RULES[rule] ?? rule}`;
  switch (kind) {
    case 'placed':
      return `host placed${why}`;
    case 'moved':
      return `host moved${why}`;
    case 'granted':
      return 'host promised its seat';
    case 'lease_ended':
      return `seat ended: ${said('reason')}`;
    case 'recorded':
      return from_cell === null ? 'seat recorded' : 'seat recorded on another cell';
    case 'admission':
      return `admission ${said('from')} → ${said('to')}`;
    case 'mode':
      return `mode ${said('from')} → ${said('to')}`;
    case 'flags':
      return `flags, generation ${said('generation')}`;
    case 'effective_mode':
      return `runs in mode ${said('to')}`;
    case 'drain':
      return `drain ${said('state')}`;
    case 'migration':
      return `migration ${said('state')}`;
    case 'fence':
      return `fence ${said('state')}`;
    case 'cell_registered':
      return 'cell registered';
    case 'cell_retired':
      return 'cell retired';
    case 'incarnation':
      return 'new process';
  }
}
