import type { DrillCell, DrillFleet, DrillProcess } from '../../server/drill/drill-fleet.ts';
import type { Link } from '../../server/drill/link.ts';
import { between, pick } from './random.ts';

/** What chaos does to a fleet. Each act undoes itself after a while, or at once when the run ends. */
export interface Act {
  text: string;
  /** Milliseconds until it is undone; 0 for what is over at once. */
  lasts: number;
  begin(): Promise<void> | void;
  undo(): Promise<void> | void;
}

export interface Stage {
  fleet: DrillFleet;
  /** Ends the server as a crash does; it is started again by itself. */
  crashPostgres(): void;
  /** Moves the database's clock. */
  stepClock(ms: number): Promise<void>;
}

type Random = () => number;
type Maker = (stage: Stage, random: Random) => Act;

const seconds = (random: Random, least: number, most: number) => Math.round(between(random, least, most) * 1_000);
const nothing = () => {};
const anyProcess = ({ fleet }: Stage, random: Random): DrillProcess =>
  pick(random, [...fleet.directors, ...fleet.cells]);

function killed(target: DrillProcess, how: 'kill' | 'end', lasts: number): Act {
  const words = how === 'kill' ? 'is killed' : 'is told to stop';
  return { text: `${target.id} ${words}`, lasts, begin: () => target[how](), undo: () => target.start() };
}

function frozen(target: DrillProcess, lasts: number): Act {
  return { text: `${target.id} stands still`, lasts, begin: () => target.freeze(), undo: () => target.thaw() };
}

function cut(text: string, link: Link, users: readonly ('director' | 'client')[], lasts: number): Act {
  return { text, lasts, begin: () => link.cut(users), undo: () => link.mend() };
}

function slowed(text: string, link: Link, ms: number, lasts: number): Act {
  return { text: `${text} ${ms} ms late`, lasts, begin: () => link.delay(ms), undo: () => link.delay(0) };
}

const MAKERS: readonly Maker[] = [
  ({ fleet }, random) => killed(pick(random, fleet.directors), 'kill', seconds(random, 1, 10)),
  ({ fleet }, random) => killed(pick(random, fleet.directors), 'end', seconds(random, 1, 10)),
  ({ fleet }, random) => killed(pick(random, fleet.cells), 'kill', seconds(random, 1, 30)),
  ({ fleet }, random) => killed(pick(random, fleet.cells), 'end', seconds(random, 1, 30)),
  (stage, random) => frozen(anyProcess(stage, random), seconds(random, 1, 20)),
  ({ fleet }, random) => {
    const cell: DrillCell = pick(random, fleet.cells);
    const users = pick(random, [['director'], ['client'], ['director', 'client']] as const);
    return cut(`${cell.id} is cut from ${users.join(' and ')}`, cell.link, users, seconds(random, 1, 20));
  },
  (stage, random) => {
    const { id, databaseLink } = anyProcess(stage, random);
    return cut(`${id} is cut from Postgres`, databaseLink, ['client'], seconds(random, 1, 20));
  },
  ({ fleet }, random) => {
    const cell = pick(random, fleet.cells);
    const ms = Math.round(between(random, 20, 1_500));
    return slowed(`${cell.id} hears and speaks`, cell.link, ms, seconds(random, 5, 20));
  },
  (stage, random) => {
    const { id, databaseLink } = anyProcess(stage, random);
    const ms = Math.round(between(random, 20, 500));
    return slowed(`Postgres answers ${id}`, databaseLink, ms, seconds(random, 5, 20));
  },
  (stage) => ({ text: 'Postgres crashes', lasts: 0, begin: () => stage.crashPostgres(), undo: nothing }),
  (stage, random) => {
    const ms = Math.round(between(random, -600_000, 600_000));
    const text = `the database's clock steps by ${(ms / 1_000).toFixed(0)} s`;
    return { text, lasts: 0, begin: () => stage.stepClock(ms), undo: nothing };
  },
];

/** The next thing to do; the seed decides. */
export function nextAct(stage: Stage, random: Random): Act {
  return pick(random, MAKERS)(stage, random);
}
