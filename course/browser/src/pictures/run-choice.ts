/** What a picture plays: its own story, or a check of the reader's last run. */

import { h } from "../dom";
import type { Report } from "../exercise";
import { calm, type StepControls } from "./pieces";
import type { Trace } from "./trace";

interface Options<Run> {
  /** The picture, and what steps through it. */
  host: HTMLElement;
  steps: StepControls;
  /** What the picture's own story is called. */
  story: string;
  /** Where a run comes from, for whoever has not made one. */
  from: string;
  /** What the picture can play of a report: a run a check. */
  runs: (report: Report) => Run[];
  /** What the button in the verdict says that plays `run`; null for no button. */
  see: (run: Run) => string | null;
  /** Load a run, or null for the story. */
  load: (run: Run | null) => void;
}

/** The button for a check's calls. */
export function seeCalls(trace: Trace): string {
  return trace.failure ? "Play these calls in the picture" : "Play the last calls in the picture";
}

export class RunChoice<Run extends { title: string }> {
  readonly root: HTMLElement;
  readonly #select = h("select", { "aria-label": "What to play" });
  readonly #button = h("button", { type: "button", class: "run-play", hidden: true });
  readonly #options: Options<Run>;
  #own: Run[] = [];

  constructor(options: Options<Run>) {
    this.#options = options;
    this.root = h("div", { class: "run-choice" }, this.#select, this.#button);
    this.#select.addEventListener("change", () => this.#load());
    this.#button.addEventListener("click", () => this.#playLast());
    this.#fill();
  }

  /** The run that is on show; null for the story. */
  get shown(): Run | null {
    return this.#own[Number(this.#select.value) - 1] ?? null;
  }

  /** Hear of the reader's runs until the function that this returns is called. */
  listen(): () => void {
    const hear = (event: Event) => this.#offer((event as CustomEvent<Report>).detail, event.target);
    document.addEventListener("course:report", hear);
    return () => document.removeEventListener("course:report", hear);
  }

  /** A report of which nothing can be played leaves what is there. */
  #offer(report: Report, target: EventTarget | null): void {
    const own = this.#options.runs(report);
    const last = own.at(-1);
    if (!last) return;
    const { shown } = this;
    this.#own = own;
    this.#fill(report.exercise);
    this.#button.hidden = false;
    this.#button.textContent = `Play your last run: ${report.exercise}`;
    const label = this.#options.see(last);
    if (label !== null && target instanceof Element) this.#offerBeside(target, label);
    // The run that was on show is gone: the new one takes its place.
    if (shown) this.#chooseLast();
  }

  /** A button in the verdict too, where the reader is. */
  #offerBeside(exercise: Element, label: string): void {
    const button = h("button", { type: "button", class: "run-see" }, label);
    button.addEventListener("click", () => this.#playLast());
    exercise.querySelector(".verdict .run-see")?.remove();
    const calls = exercise.querySelector(".verdict .calls");
    if (calls) calls.after(button);
    else exercise.querySelector(".verdict")?.prepend(button);
  }

  #playLast(): void {
    const { host, steps } = this.#options;
    this.#chooseLast();
    host.scrollIntoView({ block: "start", behavior: calm() ? "instant" : "smooth" });
    steps.focus();
    steps.play();
  }

  #chooseLast(): void {
    this.#select.value = `${this.#own.length}`;
    this.#load();
  }

  #load(): void {
    this.#options.host.parentElement?.classList.toggle("is-own-run", this.shown !== null);
    this.#options.load(this.shown);
  }

  #fill(exercise?: string): void {
    const own = this.#own.map((run, index) => h("option", { value: `${index + 1}` }, run.title));
    const runs = own.length > 0 ? h("optgroup", { label: `Your last run: ${exercise}` }, ...own) : h("option", { disabled: true }, `Your last run: ${this.#options.from}`);
    this.#select.replaceChildren(h("option", { value: "0" }, this.#options.story), runs);
  }
}
