/**
 * The timeline: a row for each sequence, a column for each step, and the step's tokens and the pool's blocks beneath.
 *
 * Whoever has steps to show makes a `Timeline` of them: the runs of chapter 4, a learner's run, an engine in the page.
 * `new TimelineView(onPick)` draws it: put its `root` somewhere, then `show(timeline)`, or `append(step)` as steps come.
 */

import { h } from "../dom";
import { counted, legend, listed, type Owner, ownerChip, owners, svg } from "./pieces";

/** What a step did with a sequence. A preempted one lost its blocks in this step; a finished one gave them back. */
export type Doing = "waiting" | "prefill" | "decode" | "idle" | "preempted" | "finished";

/** A sequence in one step, as it is after the step. */
export interface Part {
  doing: Doing;
  /** How many of its tokens the step computed. */
  num_new: number;
  /** How many of its tokens have their keys and values in the cache. */
  num_computed: number;
  /** How many tokens it has, prompt included. */
  num_tokens: number;
  num_blocks: number;
}

export interface TimelineStep {
  /** By the sequence's name. A sequence that has not come yet, or finished in an earlier step, is not in it. */
  parts: Record<string, Part>;
}

export interface Timeline {
  title: string;
  /** The pool's size; null where it is not known. */
  num_blocks: number | null;
  /** The most tokens that a step computes; null where it is not known. */
  max_step_tokens: number | null;
  /** The rows, from above: names in order of arrival. More may come with later steps. */
  sequences: string[];
  steps: TimelineStep[];
}

// In CSS pixels.
const ROW = 22; // of a sequence
const BAR = 14; // of what a sequence does
const GAP = 10; // between the rows and what is beneath
const TOKENS = 26; // the height of a full budget
const POOL = 66; // the height of a full pool
const AXIS = 16;
const NARROWEST = 11; // of a step
const WIDEST = 34;

export class TimelineView {
  readonly root: HTMLElement;
  readonly #labels = h("div", { class: "timeline-labels", "aria-hidden": "true" });
  readonly #window = h("div", { class: "timeline-window" });
  readonly #sizes: ResizeObserver;
  #timeline: Timeline = { title: "", num_blocks: null, max_step_tokens: null, sequences: [], steps: [] };
  #owners = new Map<string, Owner>();
  #pitch = NARROWEST;
  #picked = 0;

  /** `onPick` hears which step, from 1 on, the reader pointed at. */
  constructor(onPick: (step: number) => void) {
    this.root = h(
      "div",
      { class: "timeline" },
      h("div", { class: "timeline-body" }, this.#labels, this.#window),
      legend(
        ["prefill", "prefill, with its number of tokens"],
        ["decode", "decode"],
        ["waiting", "waiting"],
        ["preempted", "preempted"],
        ["finished", "finished"],
      ),
    );
    this.#window.addEventListener("click", (event) => {
      const at = event.clientX - this.#window.getBoundingClientRect().left + this.#window.scrollLeft;
      const step = Math.floor(at / this.#pitch) + 1;
      if (step >= 1 && step <= this.#timeline.steps.length) onPick(step);
    });
    this.#sizes = new ResizeObserver(() => this.#draw());
    this.#sizes.observe(this.#window);
  }

  /** Stop watching the size of the place that the drawing is in. */
  stop(): void {
    this.#sizes.disconnect();
  }

  show(timeline: Timeline): void {
    this.#timeline = timeline;
    this.#picked = Math.min(this.#picked, timeline.steps.length);
    this.#draw();
  }

  /** Add a step at the end, and look at it. */
  append(step: TimelineStep): void {
    const names = Object.keys(step.parts).filter((name) => !this.#timeline.sequences.includes(name));
    this.#timeline.sequences.push(...names);
    this.#timeline.steps.push(step);
    this.#picked = this.#timeline.steps.length;
    this.#draw();
    this.#keepInSight();
  }

  /** Mark a step, from 1 on; 0 marks none. */
  pick(step: number): void {
    this.#picked = step;
    this.#window.querySelector(".timeline-cursor")?.setAttribute("x", `${(step - 1) * this.#pitch}`);
    this.#window.querySelector(".timeline-cursor")?.setAttribute("visibility", step > 0 ? "visible" : "hidden");
    this.#keepInSight();
  }

  #keepInSight(): void {
    const left = (this.#picked - 1) * this.#pitch;
    const { scrollLeft, clientWidth } = this.#window;
    if (left < scrollLeft) this.#window.scrollLeft = Math.max(0, left - this.#pitch);
    else if (left + this.#pitch > scrollLeft + clientWidth) this.#window.scrollLeft = left + 2 * this.#pitch - clientWidth;
  }

  #draw(): void {
    const { sequences, steps, num_blocks: numBlocks, max_step_tokens: budget } = this.#timeline;
    this.#owners = owners(sequences);
    this.#pitch = Math.max(NARROWEST, Math.min(WIDEST, (this.#window.clientWidth || 600) / Math.max(steps.length, 1)));
    const rows = sequences.length * ROW;
    const tokensBase = rows + GAP + TOKENS;
    const poolBase = tokensBase + GAP + POOL;
    const height = poolBase + AXIS;
    const width = Math.max(1, Math.ceil(this.#pitch * steps.length));

    this.#drawLabels(rows);
    const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    drawing.append(
      svg("rect", { class: "timeline-cursor", x: (this.#picked - 1) * this.#pitch, y: 0, width: this.#pitch, height: poolBase, rx: 2, visibility: this.#picked > 0 ? "visible" : "hidden" }),
      ...this.#rows(),
      ...this.#tokens(tokensBase, budget),
      ...this.#pool(poolBase, numBlocks),
      ...this.#axis(poolBase + AXIS - 4),
    );
    this.#window.replaceChildren(drawing);
    // What scrolls must be within the keyboard's reach.
    if (width > this.#window.clientWidth + 1) {
      this.#window.tabIndex = 0;
      this.#window.setAttribute("role", "group");
      this.#window.setAttribute("aria-label", "Steps; scrolls sideways");
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) this.#window.removeAttribute(name);
    }
  }

  #drawLabels(rows: number): void {
    const names = this.#timeline.sequences.map((name) => {
      const owner = this.#owners.get(name)!;
      const own = name.toUpperCase() === owner.letter;
      return h("div", { style: `height: ${ROW}px` }, ownerChip(owner), !own && h("span", { class: "timeline-name" }, name));
    });
    const strip = (height: number, text: string) => h("div", { style: `height: ${height}px; margin-top: ${GAP}px` }, text);
    this.#labels.replaceChildren(...names, strip(TOKENS, "Tokens"), strip(POOL, "Pool"));
    this.#labels.style.minHeight = `${rows + 2 * GAP + TOKENS + POOL + AXIS}px`;
  }

  /** What each sequence does: one path for each colour and kind, however many steps there are. */
  #rows(): SVGElement[] {
    const pitch = this.#pitch;
    const drawn: SVGElement[] = [];
    const marks = { waiting: [] as string[], preempted: [] as string[], finished: [] as string[] };
    this.#timeline.sequences.forEach((name, row) => {
      const top = row * ROW + (ROW - BAR) / 2;
      const middle = top + BAR / 2;
      const own = { prefill: [] as string[], decode: [] as string[], idle: [] as string[] };
      this.#timeline.steps.forEach(({ parts }, step) => {
        const part = parts[name];
        if (!part) return;
        const left = step * pitch;
        const centre = left + pitch / 2;
        if (part.doing === "prefill") own.prefill.push(box(left + 0.75, top, pitch - 1.5, BAR));
        else if (part.doing === "decode") own.decode.push(box(left + 0.75, middle - 2.5, pitch - 1.5, 5));
        else if (part.doing === "idle") own.idle.push(box(left + 1.5, middle - 2.5, pitch - 3, 5));
        else if (part.doing === "waiting") marks.waiting.push(`M${round(left + 1.5)} ${middle}h${round(pitch - 3)}`);
        else if (part.doing === "preempted") marks.preempted.push(`M${round(centre - 3.5)} ${middle - 3.5}l7 7m0-7l-7 7`);
        else marks.finished.push(`M${round(centre - 4)} ${middle}l3 3l5-6.5`);
      });
      const colour = `--owner: var(--owner-${this.#owners.get(name)!.colour})`;
      for (const [kind, path] of Object.entries(own)) if (path.length > 0) drawn.push(svg("path", { class: `timeline-${kind}`, style: colour, d: path.join("") }));
      drawn.push(...this.#numbers(name, middle));
    });
    for (const [kind, path] of Object.entries(marks)) if (path.length > 0) drawn.push(svg("path", { class: `timeline-${kind}`, d: path.join("") }));
    return drawn;
  }

  #numbers(name: string, middle: number): SVGElement[] {
    return this.#timeline.steps.flatMap(({ parts }, step) => {
      const part = parts[name];
      const fits = part?.doing === "prefill" && 6.2 * `${part.num_new}`.length < this.#pitch - 1;
      return fits ? [svg("text", { class: "timeline-number", x: round((step + 0.5) * this.#pitch), y: middle + 3.4 }, `${part.num_new}`)] : [];
    });
  }

  #tokens(base: number, budget: number | null): SVGElement[] {
    const sums = this.#timeline.steps.map(({ parts }) => Object.values(parts).reduce((sum, part) => sum + part.num_new, 0));
    const most = Math.max(1, ...sums);
    // A budget far above what is ever used would flatten everything.
    const full = budget !== null && budget <= 3 * most ? budget : most;
    const columns = sums.map((sum, step) => box(step * this.#pitch + 0.75, base - (TOKENS * sum) / full, this.#pitch - 1.5, (TOKENS * sum) / full));
    return [svg("path", { class: "timeline-tokens", d: columns.join("") }), ...this.#frame(base, TOKENS, full === budget)];
  }

  #pool(base: number, numBlocks: number | null): SVGElement[] {
    const held = this.#timeline.steps.map(({ parts }) => Object.values(parts).reduce((sum, part) => sum + part.num_blocks, 0));
    const full = Math.max(1, numBlocks ?? 1, ...held);
    const unit = POOL / full;
    const floor = this.#timeline.steps.map(() => base);
    const stacks = this.#timeline.sequences.map((name) => {
      const boxes = this.#timeline.steps.map(({ parts }, step) => {
        const blocks = parts[name]?.num_blocks ?? 0;
        if (blocks === 0) return "";
        floor[step]! -= blocks * unit;
        return box(step * this.#pitch + 0.75, floor[step]!, this.#pitch - 1.5, blocks * unit - 0.75);
      });
      return svg("path", { class: "timeline-blocks", style: `--owner: var(--owner-${this.#owners.get(name)!.colour})`, d: boxes.join("") });
    });
    return [...stacks, ...this.#frame(base, POOL, numBlocks === full)];
  }

  /** The ground line of a strip and, dashed, the line that it cannot pass. */
  #frame(base: number, height: number, limited: boolean): SVGElement[] {
    const width = this.#pitch * this.#timeline.steps.length;
    const limit = limited && svg("path", { class: "timeline-limit", d: `M0 ${base - height - 0.5}h${round(width)}` });
    return [svg("path", { class: "timeline-ground", d: `M0 ${base + 0.5}h${round(width)}` }), ...(limit ? [limit] : [])];
  }

  #axis(y: number): SVGElement[] {
    const every = [1, 2, 5, 10, 20, 50, 100].find((count) => count * this.#pitch >= 22) ?? 200;
    return this.#timeline.steps.flatMap((_, index) => {
      const step = index + 1;
      return step % every === 0 || (step === 1 && every > 2) ? [svg("text", { class: "timeline-axis", x: round((index + 0.5) * this.#pitch), y }, `${step}`)] : [];
    });
  }
}

/** A step in a few sentences: who does what, and how much of the budget and the pool it takes. */
export function describe(timeline: Timeline, step: number): string[] {
  const parts = Object.entries(timeline.steps[step - 1]?.parts ?? {});
  const who = (doing: Doing) => parts.filter(([, part]) => part.doing === doing).map(([name]) => name);
  const say = (doing: Doing, one: string, many: string) => {
    const names = who(doing);
    return names.length === 0 ? [] : [`${listed(names)} ${names.length === 1 ? one : many}.`];
  };
  const prefills = parts.flatMap(([name, part]) =>
    part.doing === "prefill" ? [`${name} computes ${counted(part.num_new, "token")}: ${part.num_computed} of ${part.num_tokens} are done.`] : [],
  );
  const sum = (of: (part: Part) => number) => parts.reduce((total, [, part]) => total + of(part), 0);
  const [tokens, blocks] = [sum((part) => part.num_new), sum((part) => part.num_blocks)];
  const limits = [
    `${timeline.max_step_tokens === null ? counted(tokens, "token") : `${tokens} of ${counted(timeline.max_step_tokens, "token")}`}`,
    `${timeline.num_blocks === null ? counted(blocks, "block") : `${blocks} of ${counted(timeline.num_blocks, "block")}`}`,
  ];
  return [
    ...say("finished", "has finished, and its blocks are back", "have finished, and their blocks are back"),
    ...say("decode", "decodes", "decode"),
    ...prefills,
    ...say("preempted", "gives way: its blocks go back, and it waits at the front", "give way: their blocks go back, and they wait at the front"),
    ...say("idle", "runs and has no turn", "run and have no turn"),
    ...say("waiting", "waits", "wait"),
    `In use: ${limits.join(", ")}.`,
  ];
}

function round(number: number): number {
  return Math.round(number * 100) / 100;
}

function box(left: number, top: number, width: number, height: number): string {
  return `M${round(left)} ${round(top)}h${round(width)}v${round(height)}h${round(-width)}z`;
}
