/** What a picture plays: its own story, or a check of the reader's last run. */

import { h } from "../dom";
import type { Report } from "../exercise";
import { type Trace, tracesOf } from "./trace";

interface Options {
  /** What the picture's own story is called. */
  story: string;
  /** Where a run comes from, for whoever has not made one. */
  from: string;
  /** Whether there is something to draw in a run. */
  drawable: (trace: Trace) => boolean;
  /** Load a check of a run, or null for the story. */
  load: (trace: Trace | null) => void;
  /** Bring the picture into sight and play what is loaded. */
  play: () => void;
}

export class RunChoice {
  readonly root: HTMLElement;
  readonly #select = h("select", { "aria-label": "What to play" });
  readonly #button = h("button", { type: "button", class: "blocks-run", hidden: true });
  readonly #options: Options;
  #own: Trace[] = [];

  constructor(options: Options) {
    this.#options = options;
    this.root = h("div", { class: "blocks-head" }, this.#select, this.#button);
    this.#select.addEventListener("change", () => options.load(this.#chosen()));
    this.#button.addEventListener("click", () => this.#playLast());
    this.#fill();
  }

  /** Hear of the reader's runs until the function that this returns is called. */
  listen(): () => void {
    const hear = (event: Event) => this.#offer((event as CustomEvent<Report>).detail, event.target);
    document.addEventListener("course:report", hear);
    return () => document.removeEventListener("course:report", hear);
  }

  #offer(report: Report, target: EventTarget | null): void {
    const own = tracesOf(report).filter(this.#options.drawable);
    const last = own.at(-1);
    if (!last) return;
    const shown = this.#chosen();
    this.#own = own;
    this.#fill(report.exercise);
    this.#button.hidden = false;
    this.#button.textContent = `Play your last run: ${report.exercise}`;
    if (target instanceof Element) this.#offerBeside(target, last);
    if (!shown) return;
    // The run that was on show is gone: the new one takes its place.
    this.#select.value = `${own.length}`;
    this.#options.load(last);
  }

  /** A button in the verdict too, where the reader is. */
  #offerBeside(exercise: Element, trace: Trace): void {
    const button = h("button", { type: "button", class: "blocks-see" }, trace.failure ? "Play these calls in the picture" : "Play the last calls in the picture");
    button.addEventListener("click", () => this.#playLast());
    exercise.querySelector(".verdict .blocks-see")?.remove();
    const calls = exercise.querySelector(".verdict .calls");
    if (calls) calls.after(button);
    else exercise.querySelector(".verdict")?.prepend(button);
  }

  #playLast(): void {
    this.#select.value = `${this.#own.length}`;
    this.#options.load(this.#chosen());
    this.#options.play();
  }

  #chosen(): Trace | null {
    return this.#own[Number(this.#select.value) - 1] ?? null;
  }

  #fill(exercise?: string): void {
    const own = this.#own.map((trace, index) => h("option", { value: `${index + 1}` }, trace.title));
    const runs = own.length > 0 ? h("optgroup", { label: `Your last run: ${exercise}` }, ...own) : h("option", { disabled: true }, `Your last run: ${this.#options.from}`);
    this.#select.replaceChildren(h("option", { value: "0" }, this.#options.story), runs);
  }
}
