/**
 * A learner's work on one exercise: their code, and whether it has passed, kept in this browser.
 *
 * Another tab may work on the same exercise. Whoever saves looks first whether the record is still the one that they
 * know. If not, their text goes into a copy of its own, and the learner chooses; neither text is written over.
 */

import type { Exercise } from "./exercise";
import { changes, closeCopy, copies, type Copy, type CopyReason, keepCopy, load, type Outcome, save, type Saved, TAB } from "./store";

export class Work {
  readonly #exercise: Exercise;
  /** The record as this tab knows it. */
  #known: Saved | null;
  /** What stands in this tab's editor. */
  #code: string;
  /** The record that another tab has written since. */
  #other: Saved | null = null;
  readonly #watch = ({ detail }: CustomEventInit<string | null>) => this.#look(detail ?? null);
  #onOther: () => void = () => {};
  #onChange: () => void = () => {};

  constructor(exercise: Exercise) {
    this.#exercise = exercise;
    this.#known = load(exercise.id);
    this.#code = this.#known?.code ?? exercise.stub;
  }

  /** What belongs in the editor: the learner's code, or the stub where they have written none. */
  get code(): string {
    return this.#code;
  }

  /** Whether the learner's code was begun from another stub than today's. */
  get stubChanged(): boolean {
    return this.#known?.code != null && this.#known.stub !== this.#exercise.stub_hash;
  }

  get passed(): boolean {
    return this.#known?.passed != null;
  }

  get gaveUp(): boolean {
    return this.#known?.gaveUp != null;
  }

  /** Whether another tab has a text of its own, and nobody has chosen yet. */
  get isContested(): boolean {
    return this.#other !== null;
  }

  get copies(): Copy[] {
    return copies(this.#exercise.id).filter((copy) => copy.tab !== TAB && copy.code !== this.#code);
  }

  /** Be told of another tab's text, and of any other change of the record, until `leave`. */
  follow(onOther: () => void, onChange: () => void): void {
    this.#onOther = onOther;
    this.#onChange = onChange;
    changes.addEventListener("change", this.#watch);
  }

  leave(): void {
    changes.removeEventListener("change", this.#watch);
  }

  /** Keep `code`, which now stands in the editor. */
  keep(code: string): Outcome {
    this.#code = code;
    this.#look(this.#exercise.id);
    if (this.#other) return this.#copy(code, "tab", TAB);
    return this.#save({ code: code === this.#exercise.stub ? null : code, ...this.#nextRevision() });
  }

  /** Keep that an answer has passed. The first pass is the one that counts. */
  pass(): Outcome {
    const { course, stub_hash } = this.#exercise;
    return this.#mark({ passed: { at: new Date().toISOString(), course, stub: stub_hash } });
  }

  giveUp(): Outcome {
    return this.#mark({ gaveUp: new Date().toISOString() });
  }

  /** Take today's stub for the one that the code was begun from. */
  acceptStub(): void {
    this.#mark({ stub: this.#exercise.stub_hash });
  }

  /** Keep the text that is about to leave the editor as a copy; a stub needs none. */
  setAside(why: CopyReason): void {
    if (this.#code !== this.#exercise.stub) this.#copy(this.#code, why);
  }

  /** Choose the other tab's text, and return it. This tab's own stays as a copy. */
  takeOther(): string {
    const other = this.#other;
    if (!other) return this.#code;
    const wasMine = this.#code !== (this.#known?.code ?? this.#exercise.stub);
    closeCopy(this.#exercise.id, !wasMine);
    this.#other = null;
    this.#known = other;
    return (this.#code = other.code ?? this.#exercise.stub);
  }

  /** Choose this tab's text. The other tab's stays as a copy. */
  keepMine(): Outcome {
    const other = this.#other;
    if (!other) return "kept";
    if (other.code !== null) this.#copy(other.code, "tab");
    this.#other = null;
    this.#known = other;
    const outcome = this.keep(this.#code);
    if (outcome === "kept") closeCopy(this.#exercise.id, true);
    return outcome;
  }

  /** See whether the record is still the one that this tab knows. */
  #look(id: string | null): void {
    if (id !== this.#exercise.id) return;
    const now = load(id);
    if (!now || isSameText(now, this.#known)) {
      if (now) this.#known = now;
    } else if ((now.code ?? this.#exercise.stub) === this.#code) {
      this.#known = now;
      this.#other = null;
    } else if (now.tab === TAB) {
      this.#known = now;
    } else {
      const isNews = !this.#other || !isSameText(now, this.#other);
      this.#other = now;
      if (isNews) this.#onOther();
    }
    this.#onChange();
  }

  #copy(code: string, why: CopyReason, tab?: string): Outcome {
    return keepCopy(this.#exercise.id, { code, at: new Date().toISOString(), why, ...(tab && { tab }) });
  }

  /** Change what the record says beside its text, whoever's text that is. */
  #mark(change: Partial<Saved>): Outcome {
    const before = load(this.#exercise.id) ?? this.#known ?? this.#blank();
    const after = { ...before, ...change, passed: before.passed ?? change.passed ?? null };
    if (!this.#other) this.#known = after;
    else this.#known = { ...(this.#known ?? this.#blank()), passed: after.passed, gaveUp: after.gaveUp ?? null };
    return save(this.#exercise.id, after);
  }

  #save(change: Partial<Saved>): Outcome {
    const before = this.#known ?? this.#blank();
    const begun = before.code === null || change.code === null ? this.#exercise.stub_hash : before.stub;
    const { course } = this.#exercise;
    this.#known = { ...before, ...change, course, stub: begun, savedAt: new Date().toISOString() };
    return save(this.#exercise.id, this.#known);
  }

  #blank(): Saved {
    const { course, stub_hash } = this.#exercise;
    return { code: null, course, stub: stub_hash, savedAt: "", passed: null };
  }

  #nextRevision(): Pick<Saved, "revision" | "tab"> {
    return { revision: (this.#known?.revision ?? 0) + 1, tab: TAB };
  }
}

function isSameText(one: Saved, other: Saved | null): boolean {
  return one.revision === other?.revision && one.tab === other?.tab && one.code === other?.code;
}
