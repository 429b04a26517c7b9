/** `<course-work>`: how far the learner is, and their work to a file and back. Without JavaScript it holds a sentence. */

import { h } from "./dom";
import type { Outcome } from "./store";
import { apply, download, type Incoming, plan, WorkFileError } from "./work-file";

const STORED: Record<Outcome, string> = {
  kept: "",
  full: " This browser’s storage is full: what was imported is here only as long as this tab is open.",
  refused: " This browser refuses to keep it: what was imported is here only as long as this tab is open.",
};

export class CourseWork extends HTMLElement {
  readonly #status = h("p", { class: "work-status", role: "status" });
  readonly #ask = h("div", { class: "work-ask", hidden: true });
  readonly #input = h("input", { type: "file", accept: ".json,application/json", hidden: true, "aria-label": "Work file" });
  readonly #import = h("button", { type: "button" }, "Import…");

  connectedCallback(): void {
    const out = h("button", { type: "button" }, "Export");
    out.addEventListener("click", () => {
      const done = download();
      this.#say(done ? "Your work is in the file paged-inference-work.json." : "There is nothing to export yet.");
    });
    this.#import.onclick = () => this.#input.click();
    this.#input.onchange = () => {
      const file = this.#input.files?.[0];
      this.#input.value = "";
      if (file) void this.#read(file);
    };
    this.replaceChildren(
      h("div", { class: "work-bar" }, document.createElement("course-progress"), out, this.#import, this.#input),
      this.#ask,
      this.#status,
    );
  }

  async #read(file: File): Promise<void> {
    this.#say("");
    this.#ask.hidden = true;
    try {
      const { incoming, unknown } = await plan(file);
      const news = incoming.filter((each) => !each.isHere);
      const replaced = news.filter((each) => each.replaces);
      if (replaced.length) this.#askFirst(news, replaced, unknown);
      else this.#take(news, unknown);
    } catch (error) {
      const known = error instanceof WorkFileError;
      this.#say(known ? error.message : "The exercises could not be loaded: check your connection, and import again.");
    }
  }

  #askFirst(news: Incoming[], replaced: Incoming[], unknown: string[]): void {
    const choices: [string, () => void][] = [
      ["Import all", () => this.#take(news, unknown)],
      ["Leave these as they are", () => this.#take(news.filter((each) => !each.replaces), unknown)],
      ["Cancel", () => this.#say("Nothing was imported.")],
    ];
    const buttons = choices.map(([label, act]) => {
      const button = h("button", { type: "button" }, label);
      button.addEventListener("click", () => {
        this.#ask.hidden = true;
        act();
        this.#import.focus();
      });
      return button;
    });
    this.#ask.replaceChildren(
      h("p", {}, "The file has another text than this browser for:"),
      h("ul", {}, ...replaced.map(({ entry }) => h("li", {}, entry.title))),
      h("p", {}, "If you import them, what is here stays under Versions, above each editor."),
      h("p", {}, ...buttons),
    );
    this.#ask.hidden = false;
    buttons[0]?.focus();
  }

  #take(news: Incoming[], unknown: string[]): void {
    const outcome = apply(news);
    const count = news.length === 1 ? "1 exercise was" : `${news.length} exercises were`;
    const strange = unknown.length ? ` This version of the course has no ${unknown.join(", ")}.` : "";
    this.#say((news.length ? `${count} imported.` : "All of it is here already.") + strange + STORED[outcome]);
  }

  #say(text: string): void {
    this.#status.textContent = text;
  }
}
