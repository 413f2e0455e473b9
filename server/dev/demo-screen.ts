import { SingleBar } from 'cli-progress';
import { type Paint, painter } from './child-log.ts';

export type Out = NodeJS.WritableStream & { isTTY?: boolean };

export interface Bar {
  at(bytes: number): void;
  done(): void;
}

/** What the demo shows: numbered steps and what came of each; progress bars only where a terminal can redraw them. */
export class DemoScreen {
  readonly #out: Out;
  readonly #paint: Paint;
  #step = 0;

  constructor(out: Out, env: NodeJS.ProcessEnv) {
    this.#out = out;
    this.#paint = painter(out as NodeJS.WriteStream, env);
  }

  step(title: string): void {
    this.#step += 1;
    this.#line('');
    this.#line(`${this.#paint('cyan', String(this.#step).padStart(2))}  ${this.#paint('bold', title)}`);
  }

  did(text: string, ms?: number): void {
    const took = ms === undefined ? '' : `  ${this.#paint('dim', `${ms.toFixed(ms < 10 ? 1 : 0)} ms`)}`;
    this.#line(`    ✓ ${text}${took}`);
  }

  shell(command: string, output: string): void {
    this.#line(`    ${this.#paint('cyan', '$')} ${command}`);
    this.#line(`    ${output}`);
  }

  note(text: string): void {
    this.#line(`    ${this.#paint('dim', text)}`);
  }

  end(text: string): void {
    this.#line('');
    this.#line(`${this.#paint('bold', text)}`);
  }

  bar(label: string, totalBytes: number): Bar {
    if (!this.#out.isTTY) return { at() {}, done() {} };
    const bar = new SingleBar({
      stream: this.#out,
      format: `    ${label} {bar} {percentage} %  {mib} of {totalMib} MiB`,
      barCompleteChar: '█',
      barIncompleteChar: '░',
      barsize: 32,
      clearOnComplete: true,
      fps: 10,
      // both on, the bar would take Ctrl-C for itself, and a killed demo would leave the terminal without line breaks
      gracefulExit: false,
      linewrap: true,
    });
    const mib = (bytes: number) => (bytes / 1_048_576).toFixed(0);
    bar.start(totalBytes, 0, { mib: '0', totalMib: mib(totalBytes) });
    return {
      at: (bytes) => bar.update(bytes, { mib: mib(bytes) }),
      done: () => bar.stop(),
    };
  }

  #line(text: string): void {
    this.#out.write(`${text}\n`);
  }
}
