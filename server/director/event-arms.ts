import type { EventData } from '../../contract/events.ts';
import type { CellEvent } from './seat-map.ts';

/** Which cells' feeds the event stream rests on, for readers that come later than it was told. */
export class EventArms {
  readonly #arms = new Map<string, { open: boolean; reason?: string }>();
  readonly #toldAnew = new Set<string>();

  note(event: CellEvent): void {
    const { type, cellId } = event;
    if (type !== 'unavailable') {
      this.#arms.set(cellId, { open: true });
      this.#toldAnew.add(cellId);
      return;
    }
    this.#toldAnew.delete(cellId);
    if (event.reason === 'removed') this.#arms.delete(cellId);
    else this.#arms.set(cellId, { open: false, reason: event.reason });
  }

  cells(): EventData<'hello'>['cells'] {
    return [...this.#arms].map(([cellId, arm]) => ({ cellId, ...arm }));
  }

  /** Whether the next page of a cell tells all of it and not only what is new; true once. */
  isFirstPage(cellId: string): boolean {
    return this.#toldAnew.delete(cellId);
  }
}
