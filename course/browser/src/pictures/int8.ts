/** An INT8 block that fills: each token's integers and its error, the scale, and how often it has grown. */

import { h } from "../dom";
import { drawRun, isInt8Run, runWords } from "./int8-run";
import { counted, legend, Slider, StepControls } from "./pieces";
import type { Draw } from "./picture";
import { RunChoice, seeCalls } from "./run-choice";
import { type Trace, tracesOf } from "./trace";
import { type Arrival, arriving, bound, DATA, fill, type Grain, type HeadState, HEADS, largestOf, type Slot } from "./int8-block";

const LOUDNESS = [1, 2, 4, 8, 16, 32];
const GRAINS: [Grain, string][] = [
  ["head", "one for each block and head"],
  ["block", "one for each block"],
  ["token", "one for each token and head"],
];
const ARRIVALS: [Arrival, string][] = [
  ["one by one", "one by one"],
  ["rising", "one by one, each louder than the last"],
  ["in one write", "in one write"],
];

export const draw: Draw = (host) => {
  const loudness = new Slider({ label: `Loudness of token ${DATA.outlier}`, min: 0, max: LOUDNESS.length - 1, value: 0, onInput: turn });
  const grain = choice("Scales", GRAINS, turn);
  const arrival = choice("Tokens come", ARRIVALS, turn);
  const controls = h("div", { class: "picture-controls" }, loudness.root, grain.root, arrival.root);
  const words = h("p", { class: "int8-words", "aria-live": "polite" });
  const heads = HEADS.map((head) => new Head(head));
  const block = h("div", {}, ...heads.map(({ root }) => root), legend(["held", "its largest integer, of 127"], ["rest", "its largest error, in steps"]));
  const tables = h("div", { class: "int8-run" });
  const steps = new StepControls("Tokens", show);
  const run = new RunChoice({
    host,
    steps,
    story: "The block of this chapter",
    from: "press Check in the exercise int8-append",
    runs: (report) => tracesOf(report).filter(isInt8Run),
    see: seeCalls,
    load,
  });
  let own: Trace | null = null;
  let tokens: number[][][] = [];
  let states: HeadState[][] = [];

  host.classList.add("int8");
  host.setAttribute("role", "group");
  host.setAttribute("aria-label", "Picture: an INT8 block that fills, token by token");
  host.append(run.root, controls, steps.root, words, block, tables);
  steps.handleKeys(host);
  load(null);
  const deafen = run.listen();
  return () => {
    deafen();
    steps.pause();
  };

  function load(trace: Trace | null): void {
    own = trace;
    controls.hidden = block.hidden = own !== null;
    tables.hidden = own === null;
    if (own) return steps.load(own.calls.length);
    compute();
    steps.load(DATA.block_size);
    steps.go(DATA.block_size);
  }

  /** Turn a control: the step stays. */
  function turn(): void {
    compute();
    steps.go(steps.step);
  }

  function compute(): void {
    const factor = LOUDNESS[loudness.value]!;
    tokens = arriving(factor, arrival.value);
    states = fill(tokens, grain.value, arrival.value);
    const off = states.at(-1)!.map((state, head) => `${share(state)} in head ${head}`);
    loudness.say(`×${factor}`, `${factor} times; a token of the full block is off by up to ${off.join(", ")}`);
  }

  function show(step: number): void {
    const sentences = own ? runWords(own, step) : blockWords(step);
    words.replaceChildren(h("strong", {}, sentences[0]!), ` ${sentences.slice(1).join(" ")}`);
    words.classList.toggle("is-wrong", own !== null && own.failure !== null && step === own.calls.length);
    steps.describe(sentences[0]!);
    if (own) tables.replaceChildren(...drawRun(own, step));
    else heads.forEach((head, index) => head.show(states[step]![index]!, grain.value));
  }

  function blockWords(step: number): string[] {
    if (step === 0) return ["The block is empty."];
    return told(tokens[step - 1]!, states[step - 1]!, states[step]!, grain.value, arrival.value);
  }
};

/** A labelled choice among a few. */
function choice<Value extends string>(label: string, options: [Value, string][], onChange: () => void): { root: HTMLElement; readonly value: Value } {
  const select = h("select", {}, ...options.map(([value, text]) => h("option", { value }, text)));
  select.addEventListener("change", onChange);
  return {
    root: h("label", { class: "int8-choice" }, h("span", { class: "slider-label" }, label), select),
    get value() {
      return select.value as Value;
    },
  };
}

/** One head's part of the block: a line of figures, and a column for each slot. */
class Head {
  readonly root: HTMLElement;
  readonly #facts = h("p", { class: "int8-facts" });
  readonly #slots: HTMLElement[];
  readonly #bound = h("span", { class: "int8-bound", "aria-hidden": "true" });

  constructor(head: number) {
    this.#slots = Array.from({ length: DATA.block_size }, (_, slot) =>
      h(
        "li",
        { class: head === 0 && slot === DATA.outlier ? "int8-slot is-outlier" : "int8-slot" },
        h("span", { class: "for-screen-readers" }),
        h("span", { class: "int8-face", "aria-hidden": "true" }, h("span", { class: "int8-steps" }, h("span", {})), h("span", { class: "int8-error" }, h("span", {})), h("span", { class: "int8-at" }, `${slot}`)),
      ),
    );
    const title = `Head ${head}`;
    this.root = h(
      "section",
      { class: "int8-head", "aria-label": title },
      h("p", { class: "int8-title" }, h("strong", {}, title), head === 0 ? " loud" : " ten times quieter"),
      this.#facts,
      h("div", { class: "int8-columns" }, h("ol", { class: "int8-slots", "aria-label": `Slots of head ${head}` }, ...this.#slots), this.#bound),
    );
  }

  show(state: HeadState, grain: Grain): void {
    const limit = bound(state);
    this.#facts.textContent = facts(state, grain).join(" · ");
    this.#bound.textContent = `bound ${limit}`;
    this.#bound.hidden = state.slots.length === 0;
    this.#slots.forEach((element, index) => {
      const slot = state.slots[index];
      element.classList.toggle("is-empty", !slot);
      element.style.setProperty("--steps", `${(slot?.largest ?? 0) / 127}`);
      element.style.setProperty("--error", `${(slot?.error ?? 0) / limit}`);
      element.querySelector(".for-screen-readers")!.textContent = slot ? spoken(index, slot) : `slot ${index}: empty`;
    });
  }
}

function facts(state: HeadState, grain: Grain): string[] {
  if (state.slots.length === 0) return ["nothing written"];
  const scale = grain === "token" ? "a scale for each token" : `scale ${figure(state.scale!)}`;
  return [
    scale,
    counted(state.growths, "growth"),
    `largest error ${largestError(state).toFixed(2)} steps of ${bound(state)} allowed`,
    `off by up to ${share(state)} of a token`,
  ];
}

function largestError({ slots }: HeadState): number {
  return Math.max(0, ...slots.map(({ error }) => error));
}

/** The largest share of a token's own largest number by which it is off. */
function share({ slots }: HeadState): string {
  return `${(100 * Math.max(0, ...slots.map((slot) => slot.share))).toFixed(1)} %`;
}

function spoken(index: number, { largest, error, share }: Slot): string {
  return `slot ${index}: largest integer ${largest}, error ${error.toFixed(2)} steps, ${(100 * share).toFixed(1)} % of the token`;
}

function told(token: readonly number[][], before: HeadState[], now: HeadState[], grain: Grain, arrival: Arrival): string[] {
  const count = now[0]!.slots.length;
  const loud = HEADS.map((head) => figure(largestOf(token[head]!)));
  if (arrival === "in one write") return [`${counted(count, "token")} in one write.`, "The scale was known before any of them was quantised: each is rounded once."];
  const sentences = [`Token ${count - 1} comes: its largest numbers are ${loud[0]} in head 0 and ${loud[1]} in head 1.`];
  if (grain === "token") return [...sentences, "It has scales of its own. Nothing else changes."];
  const grew = HEADS.filter((head) => now[head]!.growths > before[head]!.growths);
  for (const head of grain === "block" ? grew.slice(0, 1) : grew) {
    const whose = grain === "block" ? "The block's scale" : `The scale of head ${head}`;
    sentences.push(`${whose} grows from ${figure(before[head]!.scale!)} to ${figure(now[head]!.scale!)}: ${count === 2 ? "the token" : `the ${count - 1} tokens`} before it ${count === 2 ? "is" : "are"} requantised.`);
  }
  if (grew.length === 0) sentences.push(count === 1 ? "It sets the scale." : "The scale is large enough: nothing else changes.");
  return sentences;
}

function figure(number: number): string {
  return `${Number(number.toPrecision(3))}`;
}
