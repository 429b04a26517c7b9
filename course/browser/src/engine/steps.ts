/** The steps of a run as a timeline, and any one of them in words. */

import { h } from "../dom";
import { counted, Slider } from "../pictures/pieces";
import { describe, type Timeline, TimelineView } from "../pictures/timeline";
import type { Settings, Step } from "./session";

export class StepsView {
  readonly root: HTMLElement;
  readonly #title = h("span");
  readonly #view = new TimelineView((step) => this.#onLook(step));
  readonly #slider = new Slider({ label: "Look at step", min: 0, max: 0, value: 0, onInput: (step) => this.#onLook(step) });
  readonly #words = h("p", { class: "engine-words" });
  readonly #onLook: (step: number) => void;
  #timeline: Timeline = { title: "", num_blocks: null, max_step_tokens: null, sequences: [], steps: [] };

  /** `onLook` hears which step, from 1 on, the reader wants to look at. */
  constructor(onLook: (step: number) => void) {
    this.#onLook = onLook;
    this.root = h(
      "div",
      { class: "engine-steps" },
      h("p", { class: "blocks-title" }, "The steps", this.#title),
      this.#view.root,
      this.#slider.root,
      this.#words,
    );
  }

  /** Stop watching the size of the place that the drawing is in. */
  leave(): void {
    this.#view.stop();
  }

  load(names: readonly string[], { num_blocks, max_step_tokens }: Settings): void {
    this.#timeline = { title: "The steps", num_blocks, max_step_tokens, sequences: [...names], steps: [] };
    this.#view.show(this.#timeline);
    this.#title.textContent = "a column for each";
    this.look(0);
  }

  append(step: Step): void {
    this.#view.append(step);
    this.#title.textContent = counted(this.#timeline.steps.length, "step");
    this.look(this.#timeline.steps.length);
  }

  look(step: number): void {
    const words = step > 0 ? describe(this.#timeline, step).join(" ") : "No step yet.";
    this.#view.pick(step);
    this.#slider.input.min = `${Math.min(1, this.#timeline.steps.length)}`;
    this.#slider.input.max = `${this.#timeline.steps.length}`;
    this.#slider.value = step;
    this.#slider.say(`${step}`, `${step}: ${words}`);
    this.#words.textContent = words;
  }
}
