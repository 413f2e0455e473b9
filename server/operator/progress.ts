import { SingleBar } from 'cli-progress';

const SAY_EVERY_MS = 5_000;

export interface Standing {
  left: number;
  total: number;
  words: string;
  /** Said at once, even where lines are spared. */
  isLast: boolean;
}

/** A bar on a terminal, else a line now and then. */
export class Progress {
  readonly #out: NodeJS.WriteStream;
  #bar: SingleBar | null = null;
  #saidAt = Number.NEGATIVE_INFINITY;
  #said = '';

  constructor(out: NodeJS.WriteStream) {
    this.#out = out;
  }

  show({ left, total, words, isLast }: Standing): void {
    if (this.#out.isTTY) {
      if (this.#bar === null) {
        this.#bar = new SingleBar({
          stream: this.#out,
          format: '{bar} {percentage} %  {words}',
          barCompleteChar: '█',
          barIncompleteChar: '░',
          barsize: 32,
          // both on, the bar would take Ctrl-C for itself, and leave the terminal without line breaks
          gracefulExit: false,
          linewrap: true,
        });
        this.#bar.start(total, total - left, { words });
      }
      this.#bar.setTotal(total);
      this.#bar.update(total - left, { words });
      return;
    }
    const now = performance.now();
    if (words === this.#said || (now - this.#saidAt < SAY_EVERY_MS && !isLast)) return;
    this.#said = words;
    this.#saidAt = now;
    this.#out.write(`${words}\n`);
  }

  end(): void {
    this.#bar?.stop();
    this.#bar = null;
  }
}
