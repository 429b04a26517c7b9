/** A learner's work on one exercise: their code, and whether it has passed, kept in this browser. */

import type { Exercise } from "./exercise";
import { load, save, type Saved } from "./store";

export class Work {
  readonly #exercise: Exercise;
  #saved: Saved | null;

  constructor(exercise: Exercise) {
    this.#exercise = exercise;
    this.#saved = load(exercise.id);
  }

  /** What belongs in the editor: the learner's code, or the stub where they have written none. */
  get code(): string {
    return this.#saved?.code ?? this.#exercise.stub;
  }

  /** Whether the learner's code was begun from another stub than today's. */
  get stubChanged(): boolean {
    return this.#saved?.code != null && this.#saved.stub !== this.#exercise.stub_hash;
  }

  get passed(): boolean {
    return this.#saved?.passed != null;
  }

  /** Keep `code`; false when the browser does not. */
  keep(code: string): boolean {
    return this.#save({ code: code === this.#exercise.stub ? null : code });
  }

  /** Keep that an answer has passed. The first pass is the one that counts. */
  pass(): boolean {
    if (this.passed) return true;
    const { course, stub_hash } = this.#exercise;
    return this.#save({ passed: { at: new Date().toISOString(), course, stub: stub_hash } });
  }

  #save(change: Partial<Saved>): boolean {
    const { course, stub_hash } = this.#exercise;
    const before: Saved = this.#saved ?? { code: null, course, stub: stub_hash, savedAt: "", passed: null };
    this.#saved = { ...before, ...change, course, stub: stub_hash, savedAt: new Date().toISOString() };
    return save(this.#exercise.id, this.#saved);
  }
}
