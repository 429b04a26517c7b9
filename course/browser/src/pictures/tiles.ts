/** The kernel's tiles walking the block table: queries down, keys across, and the blocks that each step loads. */

import { h } from "../dom";
import type { Draw } from "./picture";
import { blocksListed, counted, legend, listed, Slider, StepControls, svg } from "./pieces";
import { kindOf, type Kind, LONGEST, MOST_NEW, NUM_BLOCKS, QUERIES, range, type Setting, type Step, tally, walk, type Walk } from "./tile-walk";

const BLOCK_SIZES = [8, 16, 32];
const TILES = [16, 32];
const KINDS: Kind[] = ["seen", "future", "beyond", "nobody"];
const STRIP = 22; // height of the block table under the scores, in CSS pixels
const HEAD = 16; // room for the positions above them

export const draw: Draw = (host) => {
  const picture = new Tiles(host);
  const sizes = new ResizeObserver(() => picture.redraw());
  sizes.observe(host);
  return () => {
    sizes.disconnect();
    picture.stop();
  };
};

class Tiles {
  readonly #blockSize = slider("Block size", 0, BLOCK_SIZES.length - 1, 0, () => this.#load());
  readonly #tile = slider("Keys a tile", 0, TILES.length - 1, 0, () => this.#load());
  readonly #context = slider("Context length", 1, LONGEST, 44, () => this.#load());
  readonly #new = slider("New tokens", 1, MOST_NEW, 28, () => this.#load());
  readonly #steps = new StepControls("Steps", (step) => this.#show(step));
  readonly #words = h("p", { class: "tiles-words", "aria-live": "polite" });
  readonly #sum = h("p", { class: "tiles-sum" });
  readonly #scores = svg("svg", { class: "tiles-scores", "aria-hidden": "true" });
  readonly #pool = h("ol", { class: "tiles-pool", "aria-hidden": "true" });
  #setting: Setting = { blockSize: 8, tile: 16, contextLen: 1, newTokens: 1 };
  #walk: Walk = walk(this.#setting);

  constructor(host: HTMLElement) {
    host.classList.add("tiles");
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "Picture: the kernel’s tiles and the block table, step by step");
    host.append(
      h("div", { class: "picture-controls" }, this.#context.root, this.#new.root, this.#blockSize.root, this.#tile.root),
      this.#steps.root,
      this.#words,
      this.#scores,
      h("p", { class: "tiles-title" }, "Pool, with the slots that this step loads"),
      this.#pool,
      this.#sum,
      legend(
        ["seen", "a score that counts"],
        ["future", "loaded, and masked: a later position"],
        ["beyond", "not loaded: beyond the limit"],
        ["nobody", "a row of nobody: not stored"],
      ),
    );
    this.#steps.handleKeys(host);
    this.#load();
  }

  stop(): void {
    this.#steps.pause();
  }

  redraw(): void {
    this.#drawScores(this.#steps.step);
  }

  #load(): void {
    const contextLen = this.#context.value;
    this.#new.input.max = `${Math.min(MOST_NEW, contextLen)}`;
    const newTokens = Math.min(this.#new.value, contextLen);
    const [blockSize, tile] = [BLOCK_SIZES[this.#blockSize.value]!, TILES[this.#tile.value]!];
    this.#setting = { blockSize, tile, contextLen, newTokens };
    this.#walk = walk(this.#setting);
    const kernel = this.#walk.decode ? "decode_kernel runs" : "prefill_kernel runs";
    this.#context.say(counted(contextLen, "token"), counted(contextLen, "token"));
    this.#new.say(`${newTokens}`, `${newTokens}; ${kernel}`);
    this.#blockSize.say(`${blockSize}`, counted(blockSize, "token"));
    this.#tile.say(`${tile}`, counted(tile, "key"));
    this.#steps.load(this.#walk.steps.length);
  }

  #show(number: number): void {
    const step = this.#walk.steps[number - 1];
    const words = step ? this.#describe(step) : this.#before();
    const [first, ...rest] = words;
    this.#words.replaceChildren(h("strong", {}, first!), ...rest.map((text) => ` ${text}`));
    this.#steps.describe(step ? `program ${step.program.id}, keys from ${step.start}` : "before the first tile");
    const { keys, scores, seen } = tally(this.#walk, number, this.#setting);
    this.#sum.textContent = `So far: ${counted(keys, "key")} loaded, ${counted(scores, "score")} multiplied, of which ${seen} count.`;
    this.#drawScores(number);
    this.#drawPool(step);
  }

  #before(): string[] {
    const { contextLen, newTokens } = this.#setting;
    const count = counted(this.#walk.programs.length, "program");
    const tokens = newTokens === 1 ? "One new token" : `The last ${newTokens}`;
    const rows = this.#walk.decode
      ? "one for each KV head, with its three query heads in the first of 16 lanes"
      : `one for each ${QUERIES} new tokens of this head`;
    return [`${tokens} of a context of ${contextLen}: ${count}, ${rows}.`, "On a GPU all of them run at once; here one after the other."];
  }

  #describe({ program, start, loaded, masked, entries, blocks, end }: Step): string[] {
    const last = start + loaded - 1;
    const span = loaded === 1 ? `Position ${start}` : `Positions ${start} to ${last}`;
    const lanes = end - start - loaded;
    return [
      `Program ${program.id}: ${program.what}.`,
      `${span}: ${entries.length === 1 ? "entry" : "entries"} ${listed(entries)} of the block table, ${blocksListed(blocks)}.`,
      lanes > 0 ? `${counted(lanes, "lane")} at ${program.limit} and beyond load nothing.` : "Every lane loads.",
      this.#walk.decode ? "No causal mask: the new token is the last." : masked ? "The causal mask compares positions here." : "No causal mask: all of it is in the past.",
    ];
  }

  #drawScores(number: number): void {
    const { decode, programs, steps, table } = this.#walk;
    const { blockSize, contextLen, newTokens } = this.#setting;
    const width = this.#scores.clientWidth || 640;
    const cell = width / LONGEST;
    const tall = (decode ? 1 : MOST_NEW / Math.max(QUERIES, programs.length * QUERIES)) * cell;
    const height = MOST_NEW * cell;
    this.#scores.setAttribute("height", `${HEAD + height + STRIP + 6}`);
    const boxes = new Map<string, string[]>();
    const box = (name: string, ...at: [left: number, top: number, width: number, height: number]) => {
      const [left, top, wide, high] = at.map((each) => Math.round(each * 100) / 100);
      boxes.set(name, [...(boxes.get(name) ?? []), `M${left} ${top}h${wide}v${high}h${-wide!}z`]);
    };
    const gap = cell > 6 ? 1 : 0.5;
    steps.forEach((step, index) => {
      const done = index < number ? "" : " is-ahead";
      for (const row of range(step.program.firstRow, step.program.firstRow + QUERIES)) {
        for (const key of range(step.start, Math.min(step.end, LONGEST))) {
          box(`score-${kindOf(step, row, key, this.#setting)}${done}`, key * cell, HEAD + row * tall, cell - gap, tall - gap);
        }
      }
    });
    const names = KINDS.flatMap((kind) => [`score-${kind} is-ahead`, `score-${kind}`]);
    const current = steps[number - 1];
    const children: SVGElement[] = names.map((name) => svg("path", { class: name, d: (boxes.get(name) ?? []).join("") }));
    for (const position of [...new Set([0, ...range(blockSize, contextLen, blockSize)])]) {
      children.push(svg("text", { class: "tiles-label", x: position * cell, y: 11 }, `${position}`));
    }
    if (current) {
      const [top, high] = [HEAD + current.program.firstRow * tall, QUERIES * tall];
      children.push(svg("rect", { class: "tiles-now", x: current.start * cell, y: top, width: Math.min(current.end, LONGEST) * cell - current.start * cell, height: high }));
    }
    table.forEach((block, entry) => {
      const [left, wide] = [entry * blockSize * cell, blockSize * cell];
      const used = current?.entries.includes(entry) ? "tiles-entry is-used" : "tiles-entry";
      children.push(svg("rect", { class: used, x: left + 0.5, y: HEAD + height + 4.5, width: Math.min(wide, width - left) - 1, height: STRIP - 1 }));
      children.push(svg("text", { class: "tiles-block", x: left + Math.min(wide, width - left) / 2, y: HEAD + height + 19 }, `${block}`));
    });
    const what = newTokens === 1 ? "lanes" : "rows";
    this.#scores.dataset["rows"] = what;
    this.#scores.replaceChildren(...children);
  }

  #drawPool(step: Step | undefined): void {
    const { blockSize } = this.#setting;
    const now = new Set(step ? range(step.start, step.start + step.loaded).map((position) => this.#slot(position)) : []);
    const blocks = range(0, NUM_BLOCKS).map((block) => {
      const places = range(block * blockSize, (block + 1) * blockSize).map((slot) => h("i", now.has(slot) ? { class: "is-now" } : {}));
      return h("li", this.#walk.table.includes(block) ? {} : { class: "is-others" }, h("b", {}, `${block}`), h("span", {}, ...places));
    });
    this.#pool.replaceChildren(...blocks);
  }

  #slot(position: number): number {
    const { blockSize } = this.#setting;
    return this.#walk.table[Math.floor(position / blockSize)]! * blockSize + (position % blockSize);
  }
}

function slider(label: string, min: number, max: number, value: number, onInput: () => void): Slider {
  return new Slider({ label, min, max, value, onInput });
}
