/** The block-table explorer: a pool, its free queue and the tables, step by step through a trace. */

import { h } from "../dom";
import type { Call, Report } from "../exercise";
import { blocksListed, calm, counted, legend, listed, type Owner, ownerChip, owners, ownersFill, runs, slots, StepControls } from "./pieces";
import type { Draw } from "./picture";
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
  const listen = (event: Event) => explorer.offer((event as CustomEvent<Report>).detail, event.target);
  document.addEventListener("course:report", listen);
  return () => {
    document.removeEventListener("course:report", listen);
    explorer.stop();
  };
};

class Explorer {
  readonly #host: HTMLElement;
  readonly #choice = h("select", { "aria-label": "What to play" });
  readonly #run = h("button", { type: "button", class: "blocks-run", hidden: true }, "Play your last run");
  readonly #steps = new StepControls("Steps", (step) => this.#show(step));
  readonly #words = h("p", { class: "blocks-words", "aria-live": "polite" });
  readonly #calls = h("ol", { class: "blocks-calls", "aria-label": "Calls" });
  readonly #state = h("div", { class: "blocks-state" });
  #own: Trace[] = [];
  #trace = STORY;
  #owners = new Map<string, Owner>();

  constructor(host: HTMLElement) {
    this.#host = host;
    host.classList.add("blocks");
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "Picture: pool, free queue and block tables, step by step");
    host.append(
      h("div", { class: "blocks-head" }, this.#choice, this.#run),
      this.#steps.root,
      this.#words,
      h("div", { class: "blocks-body" }, this.#state, h("div", { class: "blocks-list" }, this.#calls)),
      legend(["token", "a slot that holds a token, in its owner’s colour"], ["slot", "an empty slot"], ["freed", "a free block"]),
    );
    this.#choice.addEventListener("change", () => this.#load(this.#chosen()));
    this.#run.addEventListener("click", () => this.#playRun());
    this.#steps.handleKeys(host);
    this.#fillChoice();
    this.#load(STORY);
  }

  stop(): void {
    this.#steps.pause();
  }

  /** Offer a learner's run; `target` is the exercise that it belongs to. */
  offer(report: Report, target: EventTarget | null): void {
    this.#own = tracesOf(report);
    const last = this.#own.at(-1);
    this.#fillChoice(report.exercise);
    this.#run.hidden = !last;
    if (!last) return;
    this.#run.textContent = `Play your last run: ${report.exercise}`;
    if (target instanceof Element && hasStates(last)) this.#offerBeside(target, last);
  }

  /** A button in the verdict too, where the reader is. */
  #offerBeside(exercise: Element, trace: Trace): void {
    const button = h("button", { type: "button", class: "blocks-see" }, trace.failure ? "Play these calls in the picture" : "Play the last calls in the picture");
    button.addEventListener("click", () => this.#playRun());
    exercise.querySelector(".verdict .blocks-see")?.remove();
    const calls = exercise.querySelector(".verdict .calls");
    if (calls) calls.after(button);
    else exercise.querySelector(".verdict")?.prepend(button);
  }

  #playRun(): void {
    const last = this.#own.at(-1);
    if (!last) return;
    this.#choice.value = `${this.#own.length}`;
    this.#load(last);
    this.#host.scrollIntoView({ block: "start", behavior: calm() ? "instant" : "smooth" });
    this.#steps.focus();
    this.#steps.play();
  }

  #fillChoice(exercise?: string): void {
    const own = this.#own.map((trace, index) => h("option", { value: `${index + 1}` }, trace.title));
    const runs = own.length > 0 && h("optgroup", { label: `Your last run: ${exercise}` }, ...own);
    const none = own.length === 0 && h("option", { disabled: true }, "Your last run: press Check in an exercise");
    this.#choice.replaceChildren(h("option", { value: "0" }, STORY.title), ...[runs, none].filter((each) => each !== false));
    if (this.#trace === STORY) this.#choice.value = "0";
    else {
      // The run that was on show is gone: the new one takes its place.
      this.#choice.value = `${this.#own.length}`;
      this.#load(this.#chosen());
    }
  }

  #chosen(): Trace {
    return this.#own[Number(this.#choice.value) - 1] ?? STORY;
  }

  #load(trace: Trace): void {
    this.#trace = trace;
    this.#host.parentElement?.classList.toggle("is-own-run", trace !== STORY);
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
