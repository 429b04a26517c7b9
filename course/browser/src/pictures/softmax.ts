/** The softmax in one pass: scores arrive block by block, and the sums so far are kept against the largest of them. */

import { h } from "../dom";
import { counted, legend, listed, Slider, StepControls } from "./pieces";
import type { Draw } from "./picture";
import { RunChoice, seeCalls } from "./run-choice";
import { type Block, BLOCK_SIZES, chapterStory, DATA, isSoftmaxRun, type Key, NOTHING, runStory, type Step, type Story, type Sums } from "./softmax-story";
import { outcome, type Trace, tracesOf } from "./trace";

export const draw: Draw = (host) => {
  const picture = new Picture(host);
  const deafen = picture.choice.listen();
  return () => {
    deafen();
    picture.stop();
  };
};

class Picture {
  readonly choice: RunChoice<Trace>;
  readonly #size: Slider;
  readonly #query: Slider;
  readonly #sliders: HTMLElement;
  readonly #steps = new StepControls("Steps", (step) => this.#show(step));
  readonly #words = h("p", { class: "softmax-words", "aria-live": "polite" });
  readonly #blocks = h("ol", { class: "softmax-blocks", "aria-label": "Blocks, in the order of the block table" });
  readonly #sums = h("dl", { class: "softmax-sums" });
  #trace: Trace | null = null;
  #story: Story = chapterStory(4, DATA.queries.length - 2);

  constructor(host: HTMLElement) {
    this.choice = new RunChoice({
      host,
      steps: this.#steps,
      story: "The sequence of this chapter",
      from: "press Check in the exercise online-softmax",
      runs: (report) => tracesOf(report).filter(isSoftmaxRun),
      see: seeCalls,
      load: (trace) => this.#load(trace),
    });
    const reload = () => this.#load(null);
    this.#size = new Slider({ label: "Block size", min: 0, max: BLOCK_SIZES.length - 1, value: BLOCK_SIZES.indexOf(4), onInput: reload });
    this.#query = new Slider({ label: "Query at position", min: 0, max: DATA.queries.length - 1, value: DATA.queries.length - 2, onInput: reload });
    this.#sliders = h("div", { class: "picture-controls" }, this.#size.root, this.#query.root);
    host.classList.add("softmax");
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "Picture: the softmax in one pass, block by block");
    host.append(
      this.choice.root,
      this.#sliders,
      this.#steps.root,
      this.#words,
      this.#blocks,
      h("p", { class: "softmax-note" }, "In each column: position, share of the weight, score, value."),
      this.#sums,
      legend(["held", "share of the weight so far"], ["idle", "not seen by this query"], ["free", "a slot never written"]),
    );
    this.#steps.handleKeys(host);
    this.#load(null);
  }

  stop(): void {
    this.#steps.pause();
  }

  #load(trace: Trace | null): void {
    this.#trace = trace;
    this.#sliders.hidden = trace !== null;
    if (trace) this.#story = runStory(trace);
    else {
      const [size, position] = [BLOCK_SIZES[this.#size.value]!, this.#query.value];
      this.#story = chapterStory(size, position);
      const last = this.#story.steps.at(-1)!;
      const outcome = `${counted(last.blocks.length, "block")}, result ${written(resultOf(last.sums))}`;
      this.#size.say(counted(size, "token"), `${counted(size, "token")}: ${outcome}`);
      this.#query.say(`${position}`, `${position}, which sees ${counted(position + 1, "key")}: ${outcome}`);
    }
    this.#blocks.replaceChildren(...this.#story.blocks.map((block) => drawBlock(block, trace === null)));
    this.#steps.load(this.#story.steps.length - 1);
  }

  #show(step: number): void {
    const story = this.#story;
    const [now, before] = [story.steps[step]!, story.steps[step - 1]];
    const failed = story.failure !== null && step === story.steps.length - 1;
    const sentences = this.#trace ? runWords(now, failed ? story.failure : null) : chapterWords(story, step);
    const [first, ...rest] = sentences;
    this.#words.replaceChildren(h("strong", {}, first ?? ""), rest.length > 0 ? ` ${rest.join(" ")}` : "");
    this.#words.classList.toggle("is-wrong", failed);
    this.#steps.describe(first ?? "");
    [...this.#blocks.children].forEach((element, index) => this.#showBlock(element, index, now, step));
    const rows = this.#trace ? plainRows(before?.sums ?? NOTHING, now.sums) : chapterRows(story, step);
    this.#sums.replaceChildren(...rows.flatMap(([term, text]) => [h("dt", {}, term), h("dd", {}, text)]));
  }

  #showBlock(element: Element, index: number, { sums, blocks }: Step, step: number): void {
    const block = this.#story.blocks[index]!;
    const taken = blocks.includes(index);
    element.classList.toggle("is-taken", taken);
    element.classList.toggle("is-here", block.step === step);
    (element as HTMLElement).hidden = this.#trace !== null && !taken;
    [...element.querySelectorAll<HTMLElement>(".softmax-key")].forEach((column, at) => {
      const key = block.keys[at]!;
      const share = taken && key.score !== null ? Math.exp(key.score - sums.maximum) / sums.total : 0;
      column.style.setProperty("--share", `${Math.max(0, Math.min(1, share || 0))}`);
      column.querySelector(".for-screen-readers")!.textContent = spoken(key, taken ? share : null);
    });
  }
}

function drawBlock(block: Block, isChapter: boolean): HTMLElement {
  const keys = block.keys.map((key) =>
    h(
      "li",
      { class: `softmax-key${key.unseen ? ` is-${key.unseen}` : ""}` },
      h("span", { class: "for-screen-readers" }),
      h(
        "span",
        { class: "softmax-face", "aria-hidden": "true" },
        h("span", { class: "softmax-at" }, key.label),
        h("span", { class: "softmax-share" }, h("span", {})),
        h("span", { class: "softmax-score" }, key.score === null ? (key.unseen === "unwritten" ? "" : "−∞") : short(key.score)),
        h("span", { class: "softmax-value" }, key.value),
      ),
    ),
  );
  const title = !isChapter ? `add ${block.title}` : block.keys.length === 1 ? block.title : `block ${block.title}`;
  return h("li", { class: "softmax-block" }, h("p", { class: "softmax-title" }, title), h("ol", { "aria-label": `Keys of ${title}` }, ...keys));
}

function spoken(key: Key, share: number | null): string {
  const name = key.label === "" ? "key" : `position ${key.label}`;
  if (key.unseen === "unwritten") return `${name}: a slot never written`;
  if (key.score === null) return `${name}: ${key.unseen === "later" ? "later than the query, not seen" : "masked"}`;
  return `${name}: score ${short(key.score)}, value ${key.value}${share === null ? "" : `, ${Math.round(100 * share)} % of the weight`}`;
}

function chapterWords(story: Story, step: number): string[] {
  const size = story.blocks[0]!.keys.length;
  const blocks = story.blocks.map(({ title }) => title);
  if (step === 0) {
    return ["Nothing has been read.", `The block table says ${listed(blocks)}. The query's keys are read a block of ${size} at a time, and only once.`];
  }
  const [{ sums: before }, { sums: now }] = [story.steps[step - 1]!, story.steps[step]!];
  const block = story.blocks[step - 1]!;
  const seen = block.keys.filter(({ score }) => score !== null);
  const sentences = [`Block ${block.title} brings ${counted(seen.length, "score")}: ${listed(seen.map(({ score }) => short(score!)))}.`];
  if (step === 1) sentences.push(`The largest is ${short(now.maximum)}; the sums are kept against it.`);
  else if (now.maximum > before.maximum) {
    const factor = written(Math.exp(before.maximum - now.maximum));
    sentences.push(`The maximum rises from ${short(before.maximum)} to ${short(now.maximum)}, so both sums so far are multiplied by ${factor}.`);
  } else sentences.push(`None is above ${short(before.maximum)}: the sums so far stay as they are.`);
  const hidden = block.keys.length - seen.length;
  if (hidden > 0) sentences.push(`${counted(hidden, "slot")} of this block ${hidden === 1 ? "is" : "are"} not read.`);
  if (step === story.steps.length - 1) sentences.push("That was the last block that this query sees. Now divide.");
  return sentences;
}

function runWords({ call }: Step, failure: Trace["failure"]): string[] {
  if (failure) return [`Here it goes wrong: ${failure.message}`, ...(failure.expected === null ? [] : [`Expected: ${failure.expected}`])];
  if (!call) return ["Before the first call."];
  const result = outcome(call);
  if (result === "" || result === "None") return [call.call];
  return [call.call, result === call.returned ? `gave ${result}.` : `${result}.`];
}

/** The sums with the arithmetic of the step. */
function chapterRows(story: Story, step: number): [term: string, text: string][] {
  const [before, now] = [story.steps[Math.max(0, step - 1)]!.sums, story.steps[step]!.sums];
  const whole = written(resultOf(story.steps.at(-1)!.sums));
  if (step === 0) {
    const [maximum, ...sums] = plainRows(NOTHING, NOTHING);
    return [maximum!, ["rescale", "nothing yet"], ...sums, ["in two passes", whole]];
  }
  const keys = story.blocks[step - 1]!.keys.filter(({ score }) => score !== null);
  const weights = keys.map(({ score }) => Math.exp(score! - now.maximum));
  const values = keys.map(({ value }, index) => weights[index]! * Number(value));
  const [added, weighed] = [sum(weights), sum(values)];
  const rescale = Math.exp(before.maximum - now.maximum);
  return [
    ["maximum", `max(${short(before.maximum)}, ${short(Math.max(...keys.map(({ score }) => score!)))}) = ${short(now.maximum)}`],
    ["rescale", `exp(${short(before.maximum)} − ${bracketed(now.maximum)}) = ${written(rescale)}`],
    ["total", `${written(before.total)} × ${written(rescale)} + ${written(added)} = ${written(now.total)}`],
    ["accumulator", `${written(before.accumulator[0]!)} × ${written(rescale)} + ${bracketedSum(weighed)} = ${written(now.accumulator[0]!)}`],
    ["result so far", `${written(now.accumulator[0]!)} ÷ ${written(now.total)} = ${written(resultOf(now))}`],
    ["in two passes", whole],
  ];
}

/** The sums as they are, where the arithmetic is a learner's. */
function plainRows(before: Sums, now: Sums): [term: string, text: string][] {
  const moved = (was: string, is: string) => (was === is ? is : `${was} → ${is}`);
  const vector = (numbers: readonly number[]) => numbers.map(written).join(", ");
  return [
    ["maximum", moved(short(before.maximum), short(now.maximum))],
    ["total", moved(written(before.total), written(now.total))],
    ["accumulator", moved(vector(before.accumulator), vector(now.accumulator))],
    ["result so far", now.total === 0 ? "no key yet" : now.accumulator.map((number) => written(number / now.total)).join(", ")],
  ];
}

function resultOf({ accumulator, total }: Sums): number {
  return accumulator[0]! / total;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

/** A score: as few digits as it has, up to two. */
function short(number: number): string {
  return Number.isFinite(number) ? signed(`${Math.round(100 * number) / 100}`) : infinite(number);
}

/** A sum: three digits behind the point. */
function written(number: number): string {
  return Number.isFinite(number) ? signed(number.toFixed(3)) : infinite(number);
}

function infinite(number: number): string {
  return Number.isNaN(number) ? "NaN" : number < 0 ? "−∞" : "∞";
}

function signed(text: string): string {
  return text.replace(/^-/, "−");
}

function bracketed(number: number): string {
  return number < 0 ? `(${short(number)})` : short(number);
}

function bracketedSum(number: number): string {
  return number < 0 ? `(${written(number)})` : written(number);
}
