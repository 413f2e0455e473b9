/** One server-sent event; a comment, which only shows that the other side lives, is null. */
export type ServerEvent = { id?: string; event: string; data: string } | null;

/** Cuts a stream of text into its events, as they are defined: fields a line, an empty line ends each. */
export class EventParser {
  #rest = '';

  push(text: string): ServerEvent[] {
    const blocks = (this.#rest + text).replaceAll('\r\n', '\n').split('\n\n');
    this.#rest = blocks.pop() ?? '';
    return blocks.map(parse);
  }
}

function parse(block: string): ServerEvent {
  const fields = new Map<string, string[]>();
  for (const line of block.split('\n')) {
    const [, name, value] = /^([a-z]+): ?(.*)$/.exec(line) ?? [];
    if (name !== undefined) fields.set(name, [...(fields.get(name) ?? []), value ?? '']);
  }
  const data = fields.get('data');
  if (data === undefined) return null;
  const id = fields.get('id')?.at(-1);
  return {
    event: fields.get('event')?.at(-1) ?? 'message',
    data: data.join('\n'),
    ...(id === undefined ? {} : { id }),
  };
}
