/** `<course-engine>`: the whole engine at work in the page, on the shipped model and the reader's own parts. */

import { h } from "../dom";
import { counted, type Owner, owners, Slider } from "../pictures/pieces";
import type { Draw } from "../pictures/picture";
import { NotLoaded } from "../runner";
import { PoolView } from "./pool";
import { RequestsView } from "./requests";
import { Failed, type Opening, Session, type Settings, type Step } from "./session";
import { StepsView } from "./steps";
import { WhoseView } from "./whose";

export const draw: Draw = (host) => {
  const engine = new Engine(host);
  return () => engine.leave();
};

/** The size of the model's file, from the build. */
declare const MODEL_BYTES: number;

const PROMPTS = [
  "Alice was beginning to get very tired",
  "The Queen of Hearts ",
  "`Curiouser and curiouser!'",
  "Down, down, down.",
  "said the Hatter",
  "The Mock Turtle sighed",
];
const MOST_PROMPTS = 8;
const BLOCK_SIZES = [2, 4, 8, 16, 32];

/** `opening` until the first step can be taken; `stepping` takes one step and pauses. */
type Mode = "over" | "opening" | "playing" | "stepping" | "paused";

class Engine {
  readonly #prompts = h("textarea", { rows: "6", spellcheck: "false", wrap: "off" });
  readonly #blocks = slider("Pool", 8, 64, 24, (value) => counted(value, "block"));
  readonly #blockSize = slider("Block size", 0, BLOCK_SIZES.length - 1, 2, (value) => counted(BLOCK_SIZES[value]!, "token"));
  readonly #gap = slider("A request comes", 0, 16, 3, (value) => (value === 0 ? "all at once" : value === 1 ? "every step" : `every ${value} steps`));
  readonly #budget = slider("Step budget", 4, 64, 24, (value) => counted(value, "token"));
  readonly #length = slider("New tokens for each", 8, 96, 48, (value) => `${value}`);

  readonly #play = h("button", { type: "button", class: "engine-play" }, "Start");
  readonly #step = h("button", { type: "button" }, "Step");
  readonly #stop = h("button", { type: "button" }, "Stop");
  readonly #status = h("p", { class: "engine-status" });
  /** What is read aloud: beginnings and ends, not every step. */
  readonly #aloud = h("p", { class: "for-screen-readers", role: "status" });
  readonly #failure = h("p", { class: "engine-failure", role: "alert", hidden: true });

  readonly #whose = new WhoseView();
  readonly #requests = new RequestsView();
  readonly #pool = new PoolView();
  readonly #steps = new StepsView((step) => this.#look(step));

  #mode: Mode = "over";
  #run: Run | null = null;
  #owners = new Map<string, Owner>();
  /** Who held which blocks after each step. */
  #tables: Step["tables"][] = [];

  constructor(host: HTMLElement) {
    host.classList.add("engine");
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "The whole engine, on the shipped model");
    this.#prompts.value = PROMPTS.join("\n");
    const sliders = [this.#blocks, this.#blockSize, this.#gap, this.#budget, this.#length];
    host.append(
      h(
        "div",
        { class: "engine-settings" },
        h("label", { class: "engine-prompts" }, h("span", { class: "slider-label" }, `Prompts, one a line, up to ${MOST_PROMPTS}`), this.#prompts),
        h("div", { class: "engine-sliders" }, ...sliders.map(({ root }) => root), h("p", { class: "engine-note" }, "All of this counts from the next start.")),
      ),
      h("div", { class: "engine-bar" }, this.#play, this.#step, this.#stop, this.#status),
      this.#aloud,
      this.#failure,
      this.#whose.root,
      this.#requests.root,
      this.#pool.root,
      this.#steps.root,
    );
    this.#play.addEventListener("click", () => this.#playOrPause());
    this.#step.addEventListener("click", () => this.#takeOne());
    this.#stop.addEventListener("click", () => this.#end("Stopped"));
    this.#clear(this.#settings());
    this.#status.textContent = `Start loads the model: ${(MODEL_BYTES / 1e6).toFixed(1)} MB, once a visit.`;
    this.#enter("over");
  }

  leave(): void {
    this.#run?.kill();
    this.#run = null;
    this.#steps.leave();
  }

  #playOrPause(): void {
    if (this.#mode === "over") return void this.#start("playing");
    if (this.#mode === "paused") return void this.#goOn("playing");
    if (this.#mode === "playing" || this.#mode === "stepping") this.#pause();
  }

  #takeOne(): void {
    if (this.#mode === "over") return void this.#start("stepping");
    if (this.#mode === "paused") return void this.#goOn("stepping");
    if (this.#mode === "playing") this.#pause();
  }

  #pause(): void {
    this.#enter("paused");
    this.#aloud.textContent = `Paused after step ${this.#run?.steps ?? 0}.`;
  }

  #settings(): Settings {
    const lines = this.#prompts.value.split("\n").map((line) => line.replace(/\r$/, ""));
    return {
      prompts: lines.filter((line) => line.trim() !== "").slice(0, MOST_PROMPTS),
      max_new_tokens: this.#length.value,
      num_blocks: this.#blocks.value,
      block_size: BLOCK_SIZES[this.#blockSize.value]!,
      max_step_tokens: this.#budget.value,
      arrival_gap: this.#gap.value,
    };
  }

  #clear(settings: Settings): void {
    this.#owners = owners(settings.prompts.map((_, index) => String.fromCharCode(65 + index)));
    this.#tables = [];
    this.#requests.load(settings.prompts, settings.max_new_tokens, this.#owners);
    this.#pool.load(settings.num_blocks);
    this.#steps.load([...this.#owners.keys()], settings);
    this.#failure.hidden = true;
  }

  async #start(mode: "playing" | "stepping"): Promise<void> {
    const settings = this.#settings();
    if (settings.prompts.length === 0) {
      this.#status.textContent = this.#aloud.textContent = "Write a prompt first: there is nothing to continue.";
      return;
    }
    const run = (this.#run = new Run(settings));
    this.#clear(settings);
    this.#enter("opening");
    try {
      await run.open((opening) => this.#run === run && this.#tell(opening));
      if (this.#run !== run) return;
      this.#whose.show(run.origins);
      this.#aloud.textContent = "The engine runs.";
    } catch (error) {
      return this.#fail(run, error);
    }
    await this.#goOn(mode);
  }

  /** Take steps as long as the mode says so. */
  async #goOn(mode: "playing" | "stepping"): Promise<void> {
    const run = this.#run;
    if (!run) return;
    this.#enter(mode);
    if (run.isStepping) return; // the loop that awaits that step goes on
    try {
      while (this.#run === run && (this.#mode === "playing" || this.#mode === "stepping")) {
        const once = this.#mode === "stepping";
        const step = await run.step();
        if (this.#run !== run) return;
        this.#show(run, step);
        if (step.done) return this.#end("Finished");
        if (once && this.#mode === "stepping") this.#pause();
      }
    } catch (error) {
      this.#fail(run, error);
    }
  }

  #show(run: Run, step: Step): void {
    this.#tables.push(step.tables);
    this.#requests.append(step);
    this.#pool.show(step.tables, this.#owners);
    this.#steps.append(step);
    this.#status.textContent = run.summary;
  }

  /** Show the pool as it was after a step. A run that goes on would soon show another, so it pauses. */
  #look(step: number): void {
    if (this.#mode === "playing") this.#pause();
    const tables = this.#tables[step - 1];
    if (!tables) return;
    this.#pool.show(tables, this.#owners);
    this.#steps.look(step);
  }

  #end(how: "Finished" | "Stopped" | "Failed"): void {
    const run = this.#run;
    if (!run) return;
    this.#run = null;
    run.kill();
    this.#requests.end();
    this.#status.textContent = run.steps > 0 ? `${how}: ${run.summary}` : `${how}.`;
    if (how !== "Failed") this.#aloud.textContent = this.#status.textContent;
    this.#enter("over");
  }

  #fail(run: Run, error: unknown): void {
    if (this.#run !== run) return;
    this.#end("Failed");
    this.#failure.textContent = explain(error);
    this.#failure.hidden = false;
    if (!(error instanceof Failed)) console.warn("The engine failed:", error);
  }

  #tell(opening: Opening): void {
    this.#status.textContent = this.#aloud.textContent =
      opening.kind === "checking" ? `Checking ${counted(opening.count, "answer")} of yours…` : "Loading Python and the model: once a visit, a few seconds…";
  }

  #enter(mode: Mode): void {
    this.#mode = mode;
    this.#play.textContent = { over: "Start", opening: "Start", playing: "Pause", stepping: "Pause", paused: "Continue" }[mode];
    // Not `disabled`: a button that takes the focus away from itself is a trap for the keyboard.
    this.#play.setAttribute("aria-disabled", String(mode === "opening"));
    this.#step.setAttribute("aria-disabled", String(mode === "opening"));
    this.#stop.setAttribute("aria-disabled", String(mode === "over"));
  }
}

/** A run and its figures. */
class Run {
  steps = 0;
  isStepping = false;
  #tokens = 0;
  #computed = 0;
  #preemptions = 0;
  #seconds = 0;
  #session: Session | null = null;
  readonly #settings: Settings;
  readonly #stop = new AbortController();

  constructor(settings: Settings) {
    this.#settings = settings;
  }

  get origins() {
    return this.#session?.origins ?? [];
  }

  /** `step 12 · 34 new tokens, 60 computed · 31 a second · 2 preemptions`. */
  get summary(): string {
    const rate = this.#tokens > 0 ? ` · ${(this.#tokens / this.#seconds).toFixed(0)} a second` : "";
    const preemptions = this.#preemptions > 0 ? ` · ${counted(this.#preemptions, "preemption")}` : "";
    return `step ${this.steps} · ${counted(this.#tokens, "new token")}, ${this.#computed} computed${rate}${preemptions}`;
  }

  async open(tell: (opening: Opening) => void): Promise<void> {
    const session = await Session.open(this.#settings, this.#stop.signal, tell);
    if (this.#stop.signal.aborted) session?.kill();
    else this.#session = session;
  }

  async step(): Promise<Step> {
    const begun = performance.now();
    this.isStepping = true;
    try {
      const step = await this.#session!.step();
      this.steps = step.step;
      this.#seconds += (performance.now() - begun) / 1000;
      this.#tokens += Object.keys(step.text).length;
      const parts = Object.values(step.parts);
      this.#computed += parts.reduce((sum, { num_new }) => sum + num_new, 0);
      this.#preemptions += parts.filter(({ doing }) => doing === "preempted").length;
      return step;
    } finally {
      this.isStepping = false;
    }
  }

  kill(): void {
    this.#stop.abort();
    this.#session?.kill();
  }
}

function slider(label: string, min: number, max: number, value: number, say: (value: number) => string): Slider {
  const made = new Slider({ label, min, max, value, onInput: (now) => made.say(say(now), say(now)) });
  made.say(say(value), say(value));
  return made;
}

/** Say why the run ended; the parts that a `Failed` names are the reader's. */
function explain(error: unknown): string {
  if (error instanceof Failed) return `${error.message}. What was generated stays.`;
  if (error instanceof NotLoaded) return "Python could not be loaded: check your connection and press Start again.";
  return `The engine itself failed; that is no fault of your parts. (${String(error)})`;
}
