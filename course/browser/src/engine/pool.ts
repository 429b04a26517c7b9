/** The pool's blocks in a run of the engine: a cell each, in the colour and with the letter of its owner. */

import { h } from "../dom";
import { counted, listed, type Owner } from "../pictures/pieces";

export class PoolView {
  readonly root: HTMLElement;
  readonly #count = h("span");
  readonly #grid = h("div", { class: "engine-blocks", role: "img" });
  #cells: HTMLElement[] = [];
  #held: string[] = [];

  constructor() {
    this.root = h("div", { class: "engine-pool" }, h("p", { class: "blocks-title" }, "The pool", this.#count), this.#grid);
  }

  /** Begin with a pool of free blocks. */
  load(numBlocks: number): void {
    this.#cells = Array.from({ length: numBlocks }, () => h("span", { class: "engine-block" }));
    this.#held = Array.from({ length: numBlocks }, () => "");
    this.#grid.replaceChildren(...this.#cells);
    this.show({}, new Map());
  }

  /** Show who holds which blocks. */
  show(tables: Record<string, number[]>, owners: Map<string, Owner>): void {
    const held = this.#held.map(() => "");
    for (const [name, blocks] of Object.entries(tables)) for (const block of blocks) held[block] = name;
    held.forEach((name, block) => {
      if (name === this.#held[block]) return;
      const [cell, owner] = [this.#cells[block]!, owners.get(name)];
      cell.textContent = owner?.letter ?? "";
      cell.style.cssText = owner ? `--owner: var(--owner-${owner.colour})` : "";
      cell.classList.toggle("is-held", owner !== undefined);
    });
    this.#held = held;
    const free = held.filter((name) => name === "").length;
    this.#count.textContent = `${free} of ${counted(held.length, "block")} free`;
    const holders = Object.entries(tables).map(([name, blocks]) => `${name} holds ${blocks.length}`);
    this.#grid.setAttribute("aria-label", [`${free} of ${counted(held.length, "block")} free`, listed(holders)].filter(Boolean).join("; "));
  }
}
