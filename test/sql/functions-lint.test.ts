import { parse, parsePlPgSQL } from 'libpg-query';
import { describe, expect, test } from 'vitest';
import { functionFiles } from './function-files.ts';

const MAX_LINES = 80;
/** Session locks outlive the transaction, and behind a pooler their session (incident 9). */
const SESSION_LOCK = /pg_(try_)?advisory_(lock|unlock)/;
/** The one place that notifies; a host's transaction must not (incidents 4, 5). */
const BELL = 'cells/ring.sql';
const MAY_RING = /^(cells|modes|drains|fences)\//;

interface SqlFunction {
  schema: string;
  name: string;
  language: string;
  body: string;
  inputs: string[];
  options: Record<string, unknown>[];
}

type Node = Record<string, unknown>;

function* nodes(value: unknown): Generator<Node> {
  if (Array.isArray(value)) for (const item of value) yield* nodes(item);
  else if (value !== null && typeof value === 'object') {
    yield value as Node;
    for (const item of Object.values(value)) yield* nodes(item);
  }
}

function strings(value: unknown): string[] {
  return [...nodes(value)].flatMap(({ sval }) => (typeof sval === 'string' ? [sval] : []));
}

async function functionsIn(sql: string): Promise<SqlFunction[]> {
  const { stmts = [] } = await parse(sql);
  return stmts.flatMap(({ stmt }) => {
    const create = (stmt as Node).CreateFunctionStmt as Node | undefined;
    if (!create) return [];
    const options = (create.options as Node[]).map((option) => option.DefElem as Node);
    const [schema = '', name = ''] = strings(create.funcname);
    const parameters = ((create.parameters ?? []) as Node[]).map((p) => p.FunctionParameter as Node);
    return {
      schema,
      name,
      language: strings(options.find(({ defname }) => defname === 'language'))[0] ?? '',
      body: strings(options.find(({ defname }) => defname === 'as'))[0] ?? '',
      inputs: parameters
        .filter(({ mode }) => mode === 'FUNC_PARAM_DEFAULT' || mode === 'FUNC_PARAM_IN')
        .map((p) => String(p.name)),
      options,
    };
  });
}

/** The statements and expressions of a body, each as something that the SQL parser takes. */
async function statementsOf(fn: SqlFunction, file: string): Promise<unknown[]> {
  if (fn.language === 'sql') return [await parse(fn.body)];
  const tree = await parsePlPgSQL(file);
  const expressions = [...nodes(tree)].flatMap((node) => {
    const expr = node.PLpgSQL_expr as { query: string; parseMode?: number } | undefined;
    return expr ? [expr] : [];
  });
  return Promise.all(
    expressions.map(({ query, parseMode = 0 }) =>
      parse(parseMode === 0 ? query : `select ${parseMode === 2 ? query : query.replace(/^[^:]*:=/, '')}`),
    ),
  );
}

const readsClock = (tree: unknown) =>
  [...nodes(tree)].some((node) => {
    const call = node.FuncCall as Node | undefined;
    return call !== undefined && strings(call.funcname).join('.') === 'relay.now';
  });

const withoutComments = (sql: string) => sql.replace(/--.*$/gm, '');
const searchPathOf = (fn: SqlFunction) => {
  for (const option of fn.options) {
    const set = ((option.arg as Node | undefined)?.VariableSetStmt ?? {}) as Node;
    if (set.name === 'search_path') return strings(set.args).join(', ');
  }
  return null;
};

const parsed = await Promise.all(
  functionFiles.map(async ({ name, text }) => ({ name, text, functions: await functionsIn(text) })),
);
const withFunction = parsed.filter(({ functions }) => functions.length > 0);

describe.each(withFunction)('$name', ({ name, text, functions }) => {
  const fn = functions[0]!;
  const isPublic = fn.schema === 'relay_v1';

  test('holds one function, of the name of the file', () => {
    expect(functions.map((one) => `${one.name}.sql`)).toEqual([name.split('/').at(-1)]);
  });

  test('parses, and reads the clock in no WHERE: one moment decides a whole call', async () => {
    const statements = await statementsOf(fn, text);
    const clauses = statements.flatMap((tree) => [...nodes(tree)].map(({ whereClause }) => whereClause));
    expect(clauses.filter(readsClock)).toEqual([]);
  });

  test(`has at most ${MAX_LINES} lines, after a header that names its caller and its locks`, () => {
    const [header = '', ...rest] = text.split(/^(?=create or replace function)/m);
    expect(
      rest
        .join('')
        .split(/^comment on/m)[0]
        ?.trimEnd()
        .split('\n').length,
    ).toBeLessThanOrEqual(MAX_LINES);
    expect(header).toMatch(/^-- /);
    expect(header).toMatch(/Caller: /);
    if (fn.language === 'plpgsql') expect(header).toMatch(/Locks\b/);
  });

  test('takes no lock of the session, and rings no bell in a transaction of a host', () => {
    const code = withoutComments(text);
    expect(code).not.toMatch(SESSION_LOCK);
    if (name !== BELL) expect(code).not.toMatch(/pg_notify|\bnotify\b/i);
    if (!MAY_RING.test(name)) expect(code).not.toMatch(/relay\.ring\b/);
  });

  test('writes keywords in lower case', () => {
    const words = withoutComments(text).replace(/'(?:[^']|'')*'/g, "''");
    expect(words.match(/\b[A-Z]{2,}\b/g) ?? []).toEqual([]);
  });

  if (isPublic) {
    test('runs as the owner with its own search path, and says what it is for', () => {
      expect(fn.options.some(({ defname }) => defname === 'security')).toBe(true);
      expect(searchPathOf(fn)).toBe('relay, pg_temp');
      expect(text).toMatch(new RegExp(`^comment on function relay_v1\\.${fn.name}\\(`, 'm'));
    });
  } else {
    test('names its parameters p_…', () => {
      expect(fn.inputs.filter((input) => !input.startsWith('p_'))).toEqual([]);
    });
  }
});

test('no function is overloaded', () => {
  const names = withFunction.flatMap(({ functions }) => functions.map((fn) => `${fn.schema}.${fn.name}`));
  expect(names.filter((name, index) => names.indexOf(name) !== index)).toEqual([]);
});
