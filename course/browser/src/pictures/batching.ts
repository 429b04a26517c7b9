/** Continuous batching: six requests, or a learner's own run, step by step. */

import { h } from "../dom";
import { counted, Slider, StepControls } from "./pieces";
import type { Draw } from "./picture";
import { RunChoice } from "./run-choice";
import { builtIn, type OwnRun, RUNS, runsOf } from "./runs";
import { describe, type Timeline, TimelineView } from "./timeline";

export const draw: Draw = (host) => {
  const picture = new Batching(host);
  const deafen = picture.choice.listen();
  return () => {
    deafen();
    picture.stop();
  };
};

class Batching {
  readonly choice: RunChoice<OwnRun>;
  readonly #pool = this.#slider("Pool", RUNS.pools, RUNS.start[0]);
  readonly #gap = this.#slider("Arrivals", RUNS.gaps, RUNS.start[1]);
  readonly #budget = this.#slider("Token budget", RUNS.budgets, RUNS.start[2]);
  readonly #sliders = h("div", { class: "picture-controls" }, this.#pool.root, this.#gap.root, this.#budget.root);
  readonly #view = new TimelineView((step) => this.#steps.go(step));
  readonly #steps = new StepControls("Steps", (step) => this.#show(step));
  readonly #words = h("p", { class: "blocks-words", "aria-live": "polite" });
  #timeline: Timeline = builtIn(...RUNS.start);

  constructor(host: HTMLElement) {
    this.choice = new RunChoice({
      host,
      steps: this.#steps,
      story: "Six requests: move the sliders",
      from: "press Check in an exercise",
      runs: runsOf,
      see: () => "See these steps in the picture",
      load: () => this.#load(),
    });
    host.classList.add("batching");
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "Picture: the steps of a scheduler");
    host.append(
      this.choice.root,
      this.#sliders,
      this.#view.root,
      this.#steps.root,
      this.#words,
    );
    this.#steps.handleKeys(host);
    this.#load();
  }

  stop(): void {
    this.#steps.pause();
    this.#view.stop();
  }

  #slider(label: string, values: readonly number[], place: number): Slider {
    return new Slider({ label, min: 0, max: values.length - 1, value: place, onInput: () => this.#load() });
  }

  #load(): void {
    const own = this.choice.shown;
    this.#timeline = own ?? builtIn(this.#pool.value, this.#gap.value, this.#budget.value);
    this.#sliders.hidden = own !== null;
    this.#view.show(this.#timeline);
    this.#steps.load(this.#timeline.steps.length);
    this.#say();
  }

  #say(): void {
    const { steps } = this.#timeline;
    const preempted = steps.reduce((sum, { parts }) => sum + Object.values(parts).filter(({ doing }) => doing === "preempted").length, 0);
    const result = `all done in ${counted(steps.length, "step")}, ${counted(preempted, "preemption")}`;
    const [pool, gap, budget] = [RUNS.pools[this.#pool.value]!, RUNS.gaps[this.#gap.value]!, RUNS.budgets[this.#budget.value]!];
    const arrivals = gap === 0 ? "all at once" : gap === 1 ? "one a step" : `one in ${gap} steps`;
    this.#pool.say(counted(pool, "block"), `${counted(pool, "block")}; ${result}`);
    this.#gap.say(arrivals, `${arrivals}; ${result}`);
    this.#budget.say(`${counted(budget, "token")} a step`, `${counted(budget, "token")} a step; ${result}`);
  }

  #show(step: number): void {
    const { steps } = this.#timeline;
    this.#view.pick(step);
    const failure = step === steps.length ? (this.choice.shown?.failure ?? null) : null;
    const sentences = step === 0 ? this.#summary() : describe(this.#timeline, step);
    if (failure) sentences.push(`Here it goes wrong: ${failure}`);
    this.#words.replaceChildren(h("strong", {}, step === 0 ? "Before the first step." : `Step ${step}.`), ` ${sentences.join(" ")}`);
    this.#words.classList.toggle("is-wrong", failure !== null);
    this.#steps.describe(sentences.join(" "));
  }

  #summary(): string[] {
    const { steps, sequences } = this.#timeline;
    const gaveWay = sequences.filter((name) => steps.some(({ parts }) => parts[name]?.doing === "preempted"));
    return [
      `${counted(sequences.length, "sequence")}, ${counted(steps.length, "step")}.`,
      gaveWay.length === 0 ? "Nobody gives way." : `${gaveWay.join(", ")} ${gaveWay.length === 1 ? "gives" : "give"} way.`,
    ];
  }
}
