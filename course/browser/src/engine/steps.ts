/** The steps of a run: a row for each request, a column for each step, the pool beneath; and each step in words. */

import { h } from "../dom";
import { counted, type Owner, ownerChip, svg } from "../pictures/pieces";
import type { Doing, Part } from "../pictures/timeline";
import type { Step } from "./session";

const PITCH = 8; // of a column, in CSS pixels
const BAR = 7;
const ROW = 20;
const POOL = 40;

export class StepsView {
  static readonly LEGEND: [kind: string, text: string][] = [
    ["prefill", "prefill: several tokens of a prompt"],
    ["decode", "decode: one new token"],
    ["waiting", "waits for blocks"],
    ["preempted", "preempted"],
    ["ended", "has ended"],
  ];

  readonly root: HTMLElement;
  owners = new Map<string, Owner>();
  readonly #names = h("div", { class: "engine-names", "aria-hidden": "true" });
  readonly #drawing = svg("svg", { class: "engine-timeline", role: "img", "aria-label": "No steps yet" });
  readonly #scroller = h("div", { class: "engine-scroller", tabindex: "0", role: "group", "aria-label": "Steps" });
  readonly #list = h("ol", { tabindex: "0", "aria-label": "Steps in words" });
  readonly #title = h("span");
  #numBlocks = 0;
  #steps = 0;

  constructor() {
    this.#scroller.append(this.#drawing);
    this.root = h(
      "div",
      { class: "engine-steps" },
      h("p", { class: "blocks-title" }, "The steps", this.#title),
      h("div", { class: "engine-chart" }, this.#names, this.#scroller),
      h("details", { class: "picture-words" }, h("summary", {}, "Every step in words"), this.#list),
    );
  }

  load(owners: Map<string, Owner>, numBlocks: number): void {
    this.owners = owners;
    this.#numBlocks = numBlocks;
    this.#steps = 0;
    this.#names.replaceChildren(...[...owners.values()].map((owner) => h("span", {}, ownerChip(owner))), h("span", { class: "engine-pool-name" }, "pool"));
    const rows = owners.size * ROW;
    this.#drawing.replaceChildren(svg("line", { class: "area-base", x1: 0, x2: "100%", y1: rows + POOL + 0.5, y2: rows + POOL + 0.5 }));
    this.#drawing.setAttribute("height", `${rows + POOL + 1}`);
    this.#drawing.style.width = "100%";
    this.#drawing.setAttribute("aria-label", "No steps yet");
    this.#title.textContent = "a column for each";
    this.#list.replaceChildren();
  }

  append(step: Step): void {
    const left = this.#steps * PITCH;
    this.#steps += 1;
    const follows = this.#scroller.scrollLeft + this.#scroller.clientWidth >= this.#scroller.scrollWidth - PITCH;
    [...this.owners.values()].forEach((owner, row) => {
      const part = step.parts[owner.name];
      if (part) this.#drawing.append(...drawPart(part, left, row * ROW, `var(--owner-${owner.colour})`));
    });
    const used = this.#numBlocks - step.num_free;
    const height = (POOL - 8) * (this.#numBlocks > 0 ? used / this.#numBlocks : 0);
    this.#drawing.append(svg("rect", { class: "area-held", x: left, y: this.owners.size * ROW + POOL - height, width: BAR, height }));
    this.#drawing.style.width = `max(100%, ${this.#steps * PITCH}px)`;
    this.#drawing.setAttribute("aria-label", `${counted(this.#steps, "step")}; the pool holds ${used} of ${counted(this.#numBlocks, "block")} after the last one`);
    this.#title.textContent = counted(this.#steps, "step");
    this.#list.append(h("li", {}, inWords(step, used, this.#numBlocks)));
    if (follows) this.#scroller.scrollLeft = this.#scroller.scrollWidth;
  }
}

function drawPart({ doing, num_new: count }: Part, left: number, top: number, colour: string): SVGElement[] {
  const bar = (height: number) => svg("rect", { x: left, y: top + (ROW - height) / 2, width: BAR, height, style: `fill: ${colour}` });
  const middle = top + ROW / 2;
  switch (doing) {
    case "prefill":
      return [bar(16)];
    case "decode":
      return [bar(7)];
    case "idle":
      return [bar(2)];
    case "finished":
      return [bar(count > 1 ? 16 : 7), svg("path", { class: "mark-ended", d: `M${left + BAR} ${top + 2}v${ROW - 4}` })];
    case "waiting":
      return [svg("path", { class: "mark-waiting", d: `M${left} ${middle}h${BAR - 3}` })];
    case "preempted":
      return [svg("path", { class: "mark-preempted", d: `M${left} ${middle - 4}l${BAR - 1} 8m0 -8l${1 - BAR} 8` })];
  }
}

const WORDS: Record<Doing, (part: Part) => string> = {
  prefill: ({ num_new }) => `prefill of ${counted(num_new, "token")}`,
  decode: () => "decode",
  idle: () => "no part",
  waiting: () => "waiting",
  preempted: () => "preempted",
  finished: () => "last token",
};

function inWords({ parts, refused }: Step, used: number, numBlocks: number): string {
  const said = Object.entries(parts).map(([name, part]) => `${name} ${WORDS[part.doing](part)}`);
  said.push(...Object.keys(refused).map((name) => `${name} refused`));
  return `${said.length > 0 ? said.join(", ") : "nobody is here"}; ${used} of ${counted(numBlocks, "block")} in use`;
}
