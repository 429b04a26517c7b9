/** The block-table explorer: a pool, its free queue and the tables, step by step through a trace. */

import { h } from "../dom";
import type { Call } from "../exercise";
import { blocksListed, calm, counted, legend, listed, type Owner, ownerChip, owners, ownersFill, runs, slots, StepControls } from "./pieces";
import type { Draw } from "./picture";
import { RunChoice, seeCalls } from "./run-choice";
import {
  blockSizeOf,
  type Change,
  changeAt,
  hasStates,
  key,
  miscounted,
  names,
  outcome,
  type PoolState,
  pools,
  type State,
  stateAt,
  STORY,
  type TableState,
  tables,
  type Trace,
  tracesOf,
} from "./trace";

export const draw: Draw = (host) => {
  const explorer = new Explorer(host);
  const deafen = explorer.choice.listen();
  return () => {
    deafen();
    explorer.stop();
  };
};

class Explorer {
  readonly choice: RunChoice<Trace>;
  readonly #steps = new StepControls("Steps", (step) => this.#show(step));
  readonly #words = h("p", { class: "blocks-words", "aria-live": "polite" });
  readonly #calls = h("ol", { class: "blocks-calls", "aria-label": "Calls" });
  readonly #state = h("div", { class: "blocks-state" });
  #trace = STORY;
  #owners = new Map<string, Owner>();

  constructor(host: HTMLElement) {
    this.choice = new RunChoice({
      host,
      steps: this.#steps,
      story: STORY.title,
      from: "press Check in an exercise",
      runs: tracesOf,
      see: (trace) => (hasStates(trace) ? seeCalls(trace) : null),
      load: (trace) => this.#load(trace ?? STORY),
    });
    host.classList.add("blocks");
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "Picture: pool, free queue and block tables, step by step");
    host.append(
      this.choice.root,
      this.#steps.root,
      this.#words,
      h("div", { class: "blocks-body" }, this.#state, h("div", { class: "blocks-list" }, this.#calls)),
      legend(["token", "a slot that holds a token, in its owner’s colour"], ["slot", "an empty slot"], ["freed", "a free block"]),
    );
    this.#steps.handleKeys(host);
    this.#load(STORY);
  }

  stop(): void {
    this.#steps.pause();
  }

  #load(trace: Trace): void {
    this.#trace = trace;
    this.#owners = owners(names(trace, "BlockTable"));
    this.#calls.replaceChildren(...trace.calls.map((call, index) => this.#drawCall(call, index)));
    if (trace.failure?.expected != null) {
      this.#calls.append(h("li", { class: "call-expected" }, "expected ", h("code", {}, trace.failure.expected)));
    }
    this.#steps.load(trace.calls.length);
  }

  #drawCall(call: Call, index: number): HTMLElement {
    const wrong = this.#trace.failure !== null && index === this.#trace.calls.length - 1;
    const result = outcome(call);
    const button = h(
      "button",
      { type: "button" },
      h("code", {}, call.call),
      result !== "" && h("span", { class: "call-result" }, h("span", { "aria-hidden": "true" }, "→ "), h("code", {}, result)),
      wrong && h("strong", { class: "call-wrong" }, "✗ here it goes wrong"),
    );
    button.addEventListener("click", () => this.#steps.go(index + 1));
    return h("li", wrong ? { class: "is-wrong" } : {}, button);
  }

  #show(step: number): void {
    const trace = this.#trace;
    const change = changeAt(trace, step);
    const call = trace.calls[step - 1];
    this.#words.replaceChildren(...change.sentences.flatMap((text, index) => (index === 0 && call ? [h("strong", {}, text), " "] : [`${text} `])));
    this.#words.classList.toggle("is-wrong", trace.failure !== null && step === trace.calls.length);
    this.#steps.describe(call?.call ?? "before the first call");
    [...this.#calls.children].forEach((item, index) => {
      item.classList.toggle("is-done", index < step - 1);
      if (index === step - 1) item.setAttribute("aria-current", "step");
      else item.removeAttribute("aria-current");
    });
    this.#keepInSight();
    if (!hasStates(trace)) {
      this.#state.replaceChildren(
        h("p", { class: "picture-note" }, "There is nothing to draw in this run: no pool of up to 16 blocks and no table. Its calls are listed."),
      );
      return;
    }
    this.#draw(stateAt(trace, step), change, miscounted(trace, step).map(([block]) => block));
  }

  /** Scroll the list of calls, and nothing else, so that the current call is in it. */
  #keepInSight(): void {
    const list = this.#calls.parentElement!;
    const item = this.#calls.querySelector<HTMLElement>("[aria-current]");
    if (!item) return void (list.scrollTop = 0);
    const top = item.offsetTop - list.offsetTop;
    if (top < list.scrollTop) list.scrollTop = top - 8;
    else if (top + item.offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = top + item.offsetHeight - list.clientHeight + 8;
  }

  #draw(state: State, change: Change, wrong: readonly number[]): void {
    const before = chipPlaces(this.#state);
    const all = tables(state);
    const allPools = pools(state);
    const tableNames = names(this.#trace, "BlockTable");
    this.#state.replaceChildren(
      ...allPools.flatMap(([name, pool]) => this.#drawPool(name, pool, allPools.length === 1 ? all : [], change, wrong)),
      ...(tableNames.length > 0
        ? [
            h("p", { class: "blocks-title" }, "Block tables"),
            h("ul", { class: "tables", "aria-label": "Block tables" }, ...tableNames.map((name) => this.#drawTable(name, state[name] as TableState | undefined, change))),
          ]
        : []),
    );
    glide(this.#state, before);
  }

  #drawPool(name: string, pool: PoolState, listing: [string, TableState][], change: Change, wrong: readonly number[]): HTMLElement[] {
    const blockSize = listing[0]?.[1].block_size ?? blockSizeOf(this.#trace);
    const cells = pool.ref_counts.map((count, block) => {
      const holders = listing.filter(([, table]) => table.blocks.includes(block));
      const owned = holders.map(([table]) => this.#owners.get(table)!);
      const filled = Math.max(0, ...holders.map(([, table]) => filledIn(table, block)));
      return drawCell({ block, count, owned, blockSize, filled, change: change.blocks.get(key(name, block)), wrong: wrong.includes(block) });
    });
    const queue = pool.free_queue ?? pool.ref_counts.flatMap((count, block) => (count === 0 ? [block] : []));
    const ordered = pool.free_queue !== undefined;
    return [
      h("p", { class: "blocks-title" }, name === "pool" ? "Pool" : `Pool ${name}`, h("span", {}, `${pool.num_free} of ${pool.ref_counts.length} free`)),
      h("ul", { class: "pool", "aria-label": `Blocks of ${name}` }, ...cells),
      h("p", { class: "blocks-title" }, "Free queue", h("span", {}, ordered ? "the front is on the left" : "in which order, a run does not say")),
      h(
        "ol",
        { class: "queue", "aria-label": ordered ? "Free queue, front first" : "Free blocks" },
        ...queue.map((block) => h("li", { "data-chip": key(name, block) }, `${block}`)),
        queue.length === 0 && h("li", { class: "queue-empty" }, "empty"),
      ),
    ];
  }

  #drawTable(name: string, table: TableState | undefined, change: Change): HTMLElement {
    const owner = this.#owners.get(name)!;
    const label = [ownerChip(owner), name.toUpperCase() === owner.letter ? null : h("span", { class: "table-name" }, name)];
    if (!table || table.blocks.length === 0) {
      const text = !table ? "not there yet" : table.num_tokens === 0 ? "no tokens, no blocks" : `${counted(table.num_tokens, "token")} without a block`;
      return h("li", { class: "table is-empty" }, ...label, h("span", { class: "table-size" }, text));
    }
    const entries = table.blocks.map((block, entry) =>
      h(
        "span",
        { class: change.entries.has(key(name, entry)) ? "entry is-new" : "entry" },
        h("b", {}, `${block}`),
        slots(table.block_size, filledAt(table, entry), `var(--owner-${owner.colour})`),
      ),
    );
    const written = Array.from({ length: Math.min(table.num_tokens, table.blocks.length * table.block_size) }, (_, position) => {
      return table.blocks[Math.floor(position / table.block_size)]! * table.block_size + (position % table.block_size);
    });
    return h(
      "li",
      { class: "table" },
      ...label,
      h("span", { class: "table-size" }, counted(table.num_tokens, "token")),
      h("span", { class: "for-screen-readers" }, ` in ${blocksListed(table.blocks)}, `),
      h("span", { class: "table-slots" }, written.length === 1 ? "slot " : "slots ", runs(written)),
      h("span", { class: "entries", "aria-hidden": "true" }, ...entries),
    );
  }
}

function filledAt(table: TableState, entry: number): number {
  return Math.max(0, Math.min(table.block_size, table.num_tokens - entry * table.block_size));
}

function filledIn(table: TableState, block: number): number {
  return filledAt(table, table.blocks.indexOf(block));
}

interface Cell {
  block: number;
  count: number;
  owned: Owner[];
  blockSize: number;
  filled: number;
  change: string | undefined;
  wrong: boolean;
}

function drawCell({ block, count, owned, blockSize, filled, change, wrong }: Cell): HTMLElement {
  const holders = owned.length > 0 ? `, ${listed(owned.map(({ name }) => name))}` : "";
  const held = blockSize > 0 && count > 0 ? `, ${filled} of ${blockSize} slots hold tokens` : "";
  const spoken = `block ${block}: ${count === 0 ? "free" : counted(count, "owner")}${holders}${held}${change ? `, ${change}` : ""}`;
  const classes = ["cell", count === 0 && "is-free", change !== undefined && "is-changed", wrong && "is-wrong"].filter(Boolean).join(" ");
  return h(
    "li",
    { class: classes },
    h("span", { class: "for-screen-readers" }, spoken),
    h(
      "span",
      { class: "cell-face", "aria-hidden": "true" },
      h("span", { class: "cell-head" }, h("b", {}, `${block}`), h("span", { class: "cell-count" }, count === 0 ? "free" : `×${count}`)),
      blockSize > 0 ? slots(blockSize, count > 0 ? filled : 0, ownersFill(owned)) : null,
      h("span", { class: "cell-owners" }, ...owned.map(ownerChip)),
      h("span", { class: "cell-change" }, change ?? ""),
    ),
  );
}

/** Where each chip of the free queue is on the screen. */
function chipPlaces(root: HTMLElement): Map<string, DOMRect> {
  const chips = [...root.querySelectorAll<HTMLElement>("[data-chip]")];
  return new Map(chips.map((chip) => [chip.dataset["chip"]!, chip.getBoundingClientRect()]));
}

/** Let the chips of the queue glide from where they were; those that are new fade in. */
function glide(root: HTMLElement, before: Map<string, DOMRect>): void {
  if (calm() || before.size === 0) return;
  for (const chip of root.querySelectorAll<HTMLElement>("[data-chip]")) {
    const [was, is] = [before.get(chip.dataset["chip"]!), chip.getBoundingClientRect()];
    const from = was ? { transform: `translate(${was.left - is.left}px, ${was.top - is.top}px)` } : { opacity: 0 };
    chip.animate([from, {}], { duration: 320, easing: "ease-out" });
  }
}
