/** Reserved against paged memory: the chapter's requests, each a column as tall as the places that it takes. */

import { h } from "../dom";
import { counted, legend, Slider, svg } from "./pieces";
import type { Draw } from "./picture";
import { perRequest, total, type Taken, WORKLOAD } from "./workload";

const BLOCK_SIZES = Array.from({ length: 13 }, (_, power) => 2 ** power);
const HEIGHT = 132; // of a panel's columns, in CSS pixels
const MARK = 8; // of the mark under the column that is looked at

export const draw: Draw = (host) => {
  const { requests, max_len: maxLen } = WORKLOAD;
  const size = new Slider({ label: "Block size", min: 0, max: BLOCK_SIZES.length - 1, value: 4, onInput: update });
  const count = new Slider({ label: "Requests", min: 1, max: requests.length, value: requests.length, onInput: update });
  const look = new Slider({ label: "Look at request", min: 1, max: requests.length, value: 1, onInput: update });
  const reserved = new Panel("Reserved", `${counted(maxLen, "place")} for each request`, point);
  const paged = new Panel("Paged", "", point);
  const readout = h("dl", { class: "waste-request" });

  host.classList.add("waste");
  host.setAttribute("role", "group");
  host.setAttribute("aria-label", "Picture: reserved against paged memory");
  host.append(
    h("div", { class: "picture-controls" }, size.root, count.root),
    reserved.root,
    paged.root,
    legend(
      ["held", "holds tokens"],
      ["rest", "empty, in a last block"],
      ["idle", "empty, in a reserved room"],
      ["free", "free for others"],
    ),
    h("div", { class: "waste-look" }, look.root, readout),
    h(
      "p",
      { class: "picture-note" },
      "Both kinds of empty places are internal fragmentation. External fragmentation is not in this picture: all rooms are " +
        "of one size here, and so are all blocks, so no gap is too small.",
    ),
  );

  function point(share: number): void {
    look.value = Math.floor(share * count.value) + 1;
    update();
  }

  function update(): void {
    const blockSize = BLOCK_SIZES[size.value]!;
    const shown = requests.slice(0, count.value);
    look.input.max = `${shown.length}`;
    const index = look.value - 1;
    const [inRooms, inBlocks] = [maxLen, blockSize].map((unit) => shown.map((request) => perRequest(request, unit)));
    reserved.show(inRooms!, maxLen, index, "idle");
    paged.show(inBlocks!, blockSize, index, "rest");
    paged.subtitle = `in blocks of ${counted(blockSize, "place")}`;

    const [before, after] = [total(inRooms!), total(inBlocks!)];
    const result = `paged memory: ${percent(after.share)} holds tokens; reserved: ${percent(before.share)}`;
    size.say(counted(blockSize, "token"), `${counted(blockSize, "token")}; ${result}`);
    count.say(`${shown.length}`, `${shown.length}; ${result}`);
    showRequest(index, inRooms![index]!, inBlocks![index]!);
  }

  function showRequest(index: number, room: Taken, pages: Taken): void {
    const [prompt, answer] = requests[index]!;
    const facts = [
      ["holds", `${prompt} + ${answer} = ${counted(room.tokens, "token")}`],
      ["reserved", `${counted(room.empty, "place")} empty`],
      ["paged", `${counted(pages.units, "block")}, ${counted(pages.empty, "place")} empty`],
    ] as const;
    readout.replaceChildren(...facts.flatMap(([term, text]) => [h("dt", {}, term), h("dd", {}, text)]));
    look.say(`${index + 1}`, `${index + 1}: ${facts.map(([term, text]) => `${term} ${text}`).join("; ")}`);
  }

  const sizes = new ResizeObserver(update);
  sizes.observe(host);
  update();
  return () => sizes.disconnect();
};

/** One way to hold the requests: its share, a bar of all the places, and a column for each request. */
class Panel {
  readonly root: HTMLElement;
  readonly #subtitle = h("span", { class: "waste-subtitle" });
  readonly #share = h("output", { class: "waste-share" });
  readonly #sum = h("output", { class: "waste-sum" });
  readonly #heldBar = h("span", { class: "swatch-held" });
  readonly #emptyBar = h("span");
  readonly #held = svg("path", { class: "area-held" });
  readonly #empty = svg("path", {});
  readonly #seams = svg("path", { class: "area-seams" });
  readonly #marker = svg("path", { class: "area-marker" });
  readonly #columns: SVGSVGElement;

  constructor(title: string, subtitle: string, onPoint: (share: number) => void) {
    this.subtitle = subtitle;
    this.#columns = svg(
      "svg",
      { class: "waste-columns", height: HEIGHT + MARK, "aria-hidden": "true" },
      svg("line", { class: "area-base", x1: 0, x2: "100%", y1: HEIGHT + 0.5, y2: HEIGHT + 0.5 }),
      this.#marker,
      this.#held,
      this.#empty,
      this.#seams,
    );
    const follow = (event: PointerEvent) => {
      const share = event.offsetX / this.#drawn;
      if (share >= 0 && share < 1) onPoint(share);
    };
    this.#columns.addEventListener("pointermove", follow);
    this.#columns.addEventListener("pointerdown", follow);
    this.root = h(
      "section",
      { class: `waste-panel waste-${title.toLowerCase()}`, "aria-label": title },
      h(
        "div",
        { class: "waste-head" },
        h("p", { class: "waste-title" }, h("strong", {}, title), " ", this.#subtitle),
        h("p", { class: "waste-figures" }, this.#share, " ", this.#sum),
      ),
      h("div", { class: "waste-bar", "aria-hidden": "true" }, this.#heldBar, this.#emptyBar),
    );
    this.root.append(this.#columns);
  }

  /** The width that the columns take: a few requests do not fill the panel. */
  #drawn = 1;

  set subtitle(text: string) {
    this.#subtitle.textContent = text;
  }

  show(taken: readonly Taken[], unit: number, index: number, kind: "idle" | "rest"): void {
    const { share, places, tokens } = total(taken);
    this.#share.textContent = percent(share);
    this.#sum.textContent = `of ${counted(places, "place")} hold tokens`;
    const memory = taken.length * WORKLOAD.max_len;
    this.#heldBar.style.width = `${(100 * tokens) / memory}%`;
    this.#emptyBar.style.width = `${(100 * (places - tokens)) / memory}%`;
    this.#emptyBar.className = `swatch-${kind}`;
    this.#empty.setAttribute("class", `area-${kind}`);

    const width = this.#columns.clientWidth || 600;
    const pitch = Math.min(width / taken.length, 44);
    const gap = pitch > 12 ? 3 : pitch > 3 ? 1 : 0;
    const scale = HEIGHT / WORKLOAD.max_len;
    this.#drawn = pitch * taken.length;
    const [held, empty, seams] = [[], [], []] as [string[], string[], string[]];
    taken.forEach(({ tokens: own, places: room, units }, column) => {
      const left = column * pitch;
      held.push(box(left, HEIGHT - own * scale, pitch - gap, own * scale));
      if (room > own) empty.push(box(left, HEIGHT - room * scale, pitch - gap, (room - own) * scale));
      // Seams between blocks, where there is room for a line.
      if (kind === "rest" && unit * scale >= 3 && pitch - gap >= 4) {
        for (let block = 1; block < units; block++) {
          seams.push(`M${round(left)} ${round(HEIGHT - block * unit * scale)}h${round(pitch - gap)}`);
        }
      }
    });
    this.#held.setAttribute("d", held.join(""));
    this.#empty.setAttribute("d", empty.join(""));
    this.#seams.setAttribute("d", seams.join(""));
    const middle = index * pitch + (pitch - gap) / 2;
    this.#marker.setAttribute("d", `M${round(middle)} ${HEIGHT + 1}l5 ${MARK - 1}h-10z`);
  }
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

function round(number: number): number {
  return Math.round(number * 100) / 100;
}

function box(left: number, top: number, width: number, height: number): string {
  return `M${round(left)} ${round(top)}h${round(width)}v${round(height)}h${round(-width)}z`;
}
