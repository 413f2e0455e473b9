import { type Paint, painter } from '../dev/child-log.ts';

export interface Verdict {
  /** Number of the acceptance scenario or of the promise. */
  about: string;
  passed: boolean;
  text: string;
}

/** What a drill prints: what happens, when it happens, and what is to be thought of it. */
export class Timeline {
  readonly #out: NodeJS.WriteStream;
  readonly #paint: Paint;
  readonly #startedAt = performance.now();
  readonly #verdicts: Verdict[] = [];

  constructor(out: NodeJS.WriteStream, env: NodeJS.ProcessEnv) {
    this.#out = out;
    this.#paint = painter(out, env);
  }

  get passed(): boolean {
    return this.#verdicts.length > 0 && this.#verdicts.every(({ passed }) => passed);
  }

  title(text: string): void {
    this.#line(this.#paint('bold', text));
    this.#line('');
  }

  says(text: string): void {
    this.#line(`${this.#paint('dim', this.#elapsed())}  ${text}`);
  }

  figure(name: string, value: string): void {
    this.#line(`${' '.repeat(10)}${this.#paint('cyan', name.padEnd(34))} ${value}`);
  }

  judge(about: string, passed: boolean, text: string): void {
    this.#verdicts.push({ about, passed, text });
    const mark = passed ? this.#paint('bold', '✓') : this.#paint('red', '✗');
    this.#line(`${this.#paint('dim', this.#elapsed())}  ${mark} ${this.#paint('cyan', about.padEnd(4))} ${text}`);
  }

  end(): void {
    const held = this.#verdicts.filter(({ passed }) => passed).length;
    const word = this.passed ? this.#paint('bold', 'passed') : this.#paint('red', 'FAILED');
    this.#line('');
    this.#line(`The drill ${word}: ${held} of ${this.#verdicts.length} held, ${this.#elapsed().trim()} in all.`);
  }

  #elapsed(): string {
    return `${((performance.now() - this.#startedAt) / 1_000).toFixed(1)} s`.padStart(8);
  }

  #line(text: string): void {
    this.#out.write(`${text}\n`);
  }
}
