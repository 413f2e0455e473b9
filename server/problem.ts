/** Something the person at the terminal can act on: the message is one line and is shown without a stack. */
export class Problem extends Error {
  override readonly name: string = 'Problem';
}
