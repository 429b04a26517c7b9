/** Continuous batching: six requests, or a learner's own run, step by step. */

import { h } from "../dom";
import type { Report } from "../exercise";
import { calm, counted, Slider, StepControls } from "./pieces";
import type { Draw } from "./picture";
import { builtIn, type OwnRun, RUNS, runsOf } from "./runs";
import { describe, type Timeline, TimelineView } from "./timeline";

export const draw: Draw = (host) => {
  const picture = new Batching(host);
  const listen = (event: Event) => picture.offer((event as CustomEvent<Report>).detail, event.target);
  document.addEventListener("course:report", listen);
  return () => {
    document.removeEventListener("course:report", listen);
    picture.stop();
  };
};

class Batching {
  readonly #host: HTMLElement;
  readonly #choice = h("select", { "aria-label": "What to play" });
  readonly #run = h("button", { type: "button", class: "blocks-run", hidden: true }, "Play your last run");
  readonly #pool = this.#slider("Pool", RUNS.pools, RUNS.start[0]);
  readonly #gap = this.#slider("Arrivals", RUNS.gaps, RUNS.start[1]);
  readonly #budget = this.#slider("Token budget", RUNS.budgets, RUNS.start[2]);
  readonly #sliders = h("div", { class: "picture-controls" }, this.#pool.root, this.#gap.root, this.#budget.root);
  readonly #view = new TimelineView((step) => this.#steps.go(step));
  readonly #steps = new StepControls("Steps", (step) => this.#show(step));
  readonly #words = h("p", { class: "blocks-words", "aria-live": "polite" });
  #own: OwnRun[] = [];
  #timeline: Timeline = builtIn(...RUNS.start);

  constructor(host: HTMLElement) {
    this.#host = host;
    host.classList.add("batching");
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "Picture: the steps of a scheduler");
    host.append(
      h("div", { class: "blocks-head" }, this.#choice, this.#run),
      this.#sliders,
      this.#view.root,
      this.#steps.root,
      this.#words,
    );
    this.#choice.addEventListener("change", () => this.#load());
    this.#run.addEventListener("click", () => this.#playRun());
    this.#steps.handleKeys(host);
    this.#fillChoice();
    this.#load();
  }

  stop(): void {
    this.#steps.pause();
    this.#view.stop();
  }

  /** Offer a learner's run; `target` is the exercise that it belongs to. */
  offer(report: Report, target: EventTarget | null): void {
    this.#own = runsOf(report);
    this.#fillChoice(report.exercise);
    this.#run.hidden = this.#own.length === 0;
    this.#run.textContent = `Play your last run: ${report.exercise}`;
    if (this.#own.length === 0 || !(target instanceof Element)) return;
    const button = h("button", { type: "button", class: "blocks-see" }, "See these steps in the picture");
    button.addEventListener("click", () => this.#playRun());
    target.querySelector(".verdict .blocks-see")?.remove();
    const calls = target.querySelector(".verdict .calls");
    if (calls) calls.after(button);
    else target.querySelector(".verdict")?.prepend(button);
  }

  #playRun(): void {
    this.#choice.value = `${this.#own.length}`;
    this.#load();
    this.#host.scrollIntoView({ block: "start", behavior: calm() ? "instant" : "smooth" });
    this.#steps.focus();
    this.#steps.play();
  }

  #slider(label: string, values: readonly number[], place: number): Slider {
    return new Slider({ label, min: 0, max: values.length - 1, value: place, onInput: () => this.#load() });
  }

  #fillChoice(exercise?: string): void {
    const wasOwn = this.#choice.value !== "0" && this.#choice.value !== "";
    const own = this.#own.map((run, index) => h("option", { value: `${index + 1}` }, run.title));
    const rest = own.length > 0
      ? h("optgroup", { label: `Your last run: ${exercise}` }, ...own)
      : h("option", { disabled: true }, "Your last run: press Check in an exercise");
    this.#choice.replaceChildren(h("option", { value: "0" }, "Six requests: move the sliders"), rest);
    // The run that was on show is gone: the new one takes its place.
    this.#choice.value = wasOwn ? `${this.#own.length}` : "0";
    if (wasOwn) this.#load();
  }

  #chosen(): OwnRun | null {
    return this.#own[Number(this.#choice.value) - 1] ?? null;
  }

  #load(): void {
    const own = this.#chosen();
    this.#timeline = own ?? builtIn(this.#pool.value, this.#gap.value, this.#budget.value);
    this.#sliders.hidden = own !== null;
    this.#host.parentElement?.classList.toggle("is-own-run", own !== null);
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
    const failure = step === steps.length ? (this.#chosen()?.failure ?? null) : null;
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
