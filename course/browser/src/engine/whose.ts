/** Says which of the engine's parts are the reader's own. */

import { h } from "../dom";
import type { Origin } from "./session";

export class WhoseView {
  readonly root: HTMLElement;
  readonly #summary = h("summary", {}, "Whose parts run here?");
  readonly #list = h("div", { class: "engine-whose-list" });

  constructor() {
    this.#list.append(
      h("p", {}, "The block pool, the block table and the scheduler are yours, function by function, where your answers on these pages pass their checks; the reference’s elsewhere. Start the engine, and this says which."),
    );
    this.root = h("details", { class: "picture-words engine-whose" }, this.#summary, this.#list);
  }

  show(origins: readonly Origin[]): void {
    const yours = origins.filter((origin) => origin.yours).length;
    this.#summary.textContent = `Whose parts run: ${yours} of ${origins.length} are yours`;
    const modules = [...new Set(origins.map(({ module }) => module))];
    this.#list.replaceChildren(
      ...modules.map((module) =>
        h(
          "ul",
          { "aria-label": `${module}.py` },
          h("li", {}, h("code", {}, `${module}.py`)),
          ...origins.filter((origin) => origin.module === module).map(drawOrigin),
        ),
      ),
    );
  }
}

function drawOrigin({ title, yours, why }: Origin): HTMLElement {
  return h("li", { class: yours ? "is-yours" : "is-reference" }, h("strong", {}, yours ? "✓ yours" : "reference"), ` ${title}`, why !== null && `: ${why}`);
}
