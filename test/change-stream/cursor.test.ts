import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ageGaps, GAP_AGE_MS, type GapAges } from '../../server/change-cursor.ts';

test('a gap is carried for 60 s, then given up and counted', () => {
  const cursor = { timeline: 1, max_id: 10, gaps: [4, 7] };
  const met = ageGaps(cursor, new Map(), 0);
  expect(met).toMatchObject({ cursor, dropped: 0 });
  expect(ageGaps(cursor, met.ages, GAP_AGE_MS - 1)).toMatchObject({ cursor, dropped: 0 });
  const later = ageGaps({ ...cursor, gaps: [4, 7, 9] }, met.ages, GAP_AGE_MS);
  expect(later).toMatchObject({ cursor: { timeline: 1, max_id: 10, gaps: [9] }, dropped: 2 });
});

test('a gap that was filled is forgotten: the same id as a gap again would be a new one', () => {
  const cursor = { timeline: 1, max_id: 10, gaps: [4] };
  const filled = ageGaps({ ...cursor, gaps: [] }, ageGaps(cursor, new Map(), 0).ages, 100);
  expect(filled.ages.size).toBe(0);
});

test('whatever comes, every gap is carried or counted, and none longer than 60 s', () => {
  const looks = fc.array(fc.record({ wait: fc.nat(30_000), gaps: fc.uniqueArray(fc.nat(30)) }), { maxLength: 30 });
  fc.assert(
    fc.property(looks, (reads) => {
      let ages: GapAges = new Map();
      let now = 0;
      for (const { wait, gaps } of reads) {
        now += wait;
        const aged = ageGaps({ timeline: 1, max_id: 31, gaps }, ages, now);
        expect(aged.cursor.gaps.length + aged.dropped).toBe(gaps.length);
        for (const since of aged.ages.values()) expect(now - since).toBeLessThan(GAP_AGE_MS);
        ages = aged.ages;
      }
    }),
  );
});
