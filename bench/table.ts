/** What a bench has to say, as a Markdown table: it goes into docs/benchmarks.md as it is printed. */
export interface Table {
  title: string;
  columns: readonly string[];
  rows: readonly (readonly Cell[])[];
  /** Under the table: what was wanted, what the figures do not say. */
  notes?: readonly string[];
}

export type Cell = string | number;

/** A top-level file of this folder, other than `run.ts` and `table.ts`, exports one of these as `bench`. */
export interface Bench {
  /** One line for the list of benches. */
  about: string;
  run(): Promise<Table[]>;
}

export function formatTable(table: Table): string {
  const cells = table.rows.map((row) => row.map(formatCell));
  const widths = table.columns.map((column, i) => Math.max(column.length, ...cells.map((row) => row[i]?.length ?? 0)));
  const isNumber = table.columns.map((_, i) => table.rows.every((row) => typeof row[i] === 'number'));
  const line = (row: readonly string[]) =>
    `| ${widths.map((width, i) => (isNumber[i] ? (row[i] ?? '').padStart(width) : (row[i] ?? '').padEnd(width))).join(' | ')} |`;
  const rule = `|${widths.map((width, i) => (isNumber[i] ? `${'-'.repeat(width + 1)}:` : '-'.repeat(width + 2))).join('|')}|`;
  const notes = (table.notes ?? []).map((note) => `- ${note}`);
  return [`### ${table.title}`, '', line(table.columns), rule, ...cells.map(line), '', ...notes].join('\n').trimEnd();
}

/** Three significant digits are all that a shared machine can give; counts stay whole. */
function formatCell(cell: Cell): string {
  if (typeof cell === 'string') return cell;
  if (Number.isInteger(cell) || Math.abs(cell) >= 1_000) return Math.round(cell).toLocaleString('en-US');
  return String(Number(cell.toPrecision(3)));
}
