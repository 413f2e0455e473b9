import { describe, expect, test } from 'vitest';
import { findingsOf, type HostStory, type RunStory } from './findings.ts';

const host = (story: Partial<HostStory>): HostStory => ({
  host: 'h1',
  seatings: [
    { cell: 'c1', epoch: 1, at: 0 },
    { cell: 'c1', epoch: 1, at: 5 },
    { cell: 'c2', epoch: 2, at: 9 },
  ],
  losses: [
    { code: 1006, reason: '', at: 4, cell: 'c1', epoch: 1 },
    { code: 4503, reason: 'relay draining', at: 8, cell: 'c1', epoch: 1 },
  ],
  seated: true,
  ...story,
});

const run = (story: Partial<RunStory>): RunStory => ({
  hosts: [host({})],
  phones: [{ phone: 'p1', answered: true }],
  deaths: [],
  slots: { most: 1, allowed: 1 },
  ...story,
});

const seating = (cell: string, epoch: number) => ({ cell, epoch, at: 0 });

/** A fault of the relay, as it would show, and what is to be said of it. */
const PLANTED: [string, RunStory, string][] = [
  ['an epoch that falls', run({ hosts: [host({ seatings: [seating('c1', 3), seating('c1', 2)] })] }), 'P1'],
  ['one epoch on two cells', run({ hosts: [host({ seatings: [seating('c1', 3), seating('c2', 3)] })] }), 'P2'],
  [
    'a host that is moved while it is connected',
    run({ hosts: [host({ losses: [{ code: 4409, reason: 'host moved', at: 1, cell: 'c1', epoch: 1 }] })] }),
    'P3',
  ],
  ['a host that never finds a seat', run({ hosts: [host({ seated: false })] }), 'P10'],
  ['a phone that never reaches its host', run({ phones: [{ phone: 'p1', answered: false }] }), 'P6'],
  ['a process that dies of a fault', run({ deaths: [{ process: 'd1', of: 'exit code 1' }] }), '35'],
  ['a cell too many on the database', run({ slots: { most: 2, allowed: 1 } }), 'P7'],
];

describe('what a chaos run looks for', () => {
  test('nothing is found where nothing is wrong', () => {
    expect(findingsOf(run({}))).toEqual([]);
  });

  test('a seat that two directors booked at one epoch may be let go', () => {
    const losses = [{ code: 4409, reason: 'seated on a newer cell', at: 1, cell: 'c1', epoch: 1 }];
    expect(findingsOf(run({ hosts: [host({ losses })] }))).toEqual([]);
  });

  test.each(PLANTED)('%s', (_what, story, about) => {
    expect(findingsOf(story)).toEqual([expect.stringMatching(new RegExp(`^${about} `))]);
  });
});
