import { inFile, type MutationGroup } from './mutation.ts';

const VERDICT = 'director/reachability.test.ts';
const HOME = 'director/dead-home.test.ts';

/** What a director makes of its polls, and of a host whose home they judge (36): faults in TypeScript. */
export const verdict: readonly MutationGroup[] = [
  {
    about: 'the verdict of the polls',
    tests: [],
    mutations: inFile(
      'server/director/reachability.ts',
      [
        '36 the guards count only streaks of 45 s',
        'const failing = isFailing(state?.streak ?? null, now) ? 1 : 0;',
        'const failing = isDeadStreak(state?.streak ?? null, now) ? 1 : 0;',
        VERDICT,
      ],
      ['5 five cells are enough', 'feedCells < LIMITS.verdictMinFeedCells', 'feedCells < 5', VERDICT],
      ['6 exactly a third withholds', 'failing * 3 > feedCells', 'failing * 3 >= feedCells', VERDICT],
      [
        '7 exactly half decides',
        'regionFailing * 2 >= regionFeedCells',
        'regionFailing * 2 > regionFeedCells',
        VERDICT,
      ],
      ['8 a disruption leaves its streaks', 'this.#startAnew(scope, startedAt, now);', '', VERDICT],
      [
        '8 no streak is older than a disruption',
        'if (state.streak.startedAt < disruptedAt - OWN_START_MS) continue;',
        '',
        VERDICT,
      ],
      ['11 a peer that served no page counts', '!(state?.served || cellId === candidate)', 'false', VERDICT],
      ['12 the candidate needs a page', '!(state?.served || cellId === candidate)', '!state?.served', VERDICT],
      ['4 an answer is no news', "if (sign === 'page' || sign === 'answered') state.streak = null;", '', VERDICT],
      ['23 a late director judges', "sign === 'unanswered' && !this.#late", "sign === 'unanswered'", VERDICT],
      ['3 a pause is silence', 'streak === null || now - streak.lastAt > STREAK_GAP_MS', 'streak === null', VERDICT],
    ),
  },
  {
    about: 'a host of a dead cell',
    tests: [],
    mutations: [
      ...inFile('server/director/desk.ts', [
        '36 the rule off',
        'return evidence === null ? result :',
        'return true ? result :',
        HOME,
      ]),
      ...inFile(
        'server/director/poll-evidence.ts',
        ['25 a withheld verdict is evidence', "if (verdict.verdict !== 'dead') return null;", '', HOME],
        ['evidence of another moment', 'evaluated_at: decided_at,', 'evaluated_at: decided_at + 1,', HOME],
      ),
      ...inFile('server/director/reserve-plan.ts', [
        '26 a booking does not ask for company',
        '(last.reserve && !last.disrupted)',
        'last.reserve',
        'director/reserve-plan.test.ts',
      ]),
    ],
  },
];
