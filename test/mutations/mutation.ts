/** One fault planted in one function: the text `from`, which stands in its file exactly once, becomes `to`. */
export interface Mutation {
  /** What goes wrong; begins with the row or the number it is about. */
  name: string;
  /** Relative to db/functions; one that begins with `server/` is TypeScript, and only a vitest file can see the fault. */
  file: string;
  from: string;
  to: string;
  /** Only a vitest file can see it: the one that must fail, relative to test. */
  race?: string;
}

/** Mutations that the same pgTAP files must catch. */
export interface MutationGroup {
  about: string;
  /** Relative to test/sql; run in this order until a test fails. */
  tests: readonly string[];
  mutations: readonly Mutation[];
}

/** Mutations of one file, in brief: `[name, from, to, race?]`. */
export function inFile(
  file: string,
  ...mutations: readonly (readonly [name: string, from: string, to: string, race?: string])[]
): Mutation[] {
  return mutations.map(([name, from, to, race]) => ({ name, file, from, to, ...(race === undefined ? {} : { race }) }));
}
