/** The requests of a run: for each its prompt, the text that appears behind it, and where it stands. */

import { h } from "../dom";
import { type Owner, ownerChip } from "../pictures/pieces";
import type { Part } from "../pictures/timeline";
import type { Step } from "./session";

const LINE = 45; // characters of a text that stand in a line, roughly

interface Row {
  root: HTMLElement;
  state: HTMLElement;
  written: Text;
  isOver: boolean;
}

export class RequestsView {
  readonly root = h("ul", { class: "engine-requests", "aria-label": "Requests" });
  #rows = new Map<string, Row>();

  /** Begin with requests that have not come yet, each with room for a text of its prompt and `newTokens` more. */
  load(prompts: readonly string[], newTokens: number, owners: Map<string, Owner>): void {
    this.#rows.clear();
    this.root.replaceChildren();
    for (const [index, owner] of [...owners.values()].entries()) {
      const state = h("span", { class: "engine-state" }, "not here yet");
      const written = document.createTextNode("");
      const lines = Math.ceil((prompts[index]!.length + newTokens) / LINE) + 1;
      const text = h("p", { class: "engine-text", style: `--lines: ${lines}` }, h("span", { class: "engine-prompt" }, prompts[index]!), written);
      const root = h("li", { class: "engine-request" }, ownerChip(owner), state, text);
      this.#rows.set(owner.name, { root, state, written, isOver: false });
      this.root.append(root);
    }
  }

  /** Add what a step brought. */
  append(step: Step): void {
    for (const [name, text] of Object.entries(step.text)) this.#rows.get(name)?.written.appendData(text);
    for (const [name, part] of Object.entries(step.parts)) this.#tell(name, part.doing, words(part));
    for (const [name, why] of Object.entries(step.refused)) this.#tell(name, "refused", `refused: ${why}`);
  }

  /** The run is over: whoever is not finished stays so. */
  end(): void {
    for (const row of this.#rows.values()) {
      if (row.isOver) continue;
      row.state.textContent = "stopped";
      row.root.dataset["doing"] = "stopped";
    }
  }

  #tell(name: string, doing: string, text: string): void {
    const row = this.#rows.get(name);
    if (!row) return;
    row.isOver = doing === "finished" || doing === "refused";
    row.root.dataset["doing"] = doing;
    if (row.state.textContent !== text) row.state.textContent = text;
  }
}

function words({ doing, num_computed: done, num_tokens: all }: Part): string {
  switch (doing) {
    case "prefill":
      return done < all - 1 ? `prefill, ${done} of ${all} tokens` : "prefill";
    case "preempted":
      return "preempted: its blocks are gone, its text stays";
    case "idle":
      return "no part in this step";
    default:
      return doing;
  }
}
