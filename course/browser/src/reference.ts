/**
 * The reference beside the learner's answer: a fold below the hints. Before a pass it asks, once, whether to give up;
 * nothing of the reference is fetched before that.
 */

import { h } from "./dom";
import { type Exercise, loadReference, type Reference } from "./exercise";

export interface ReferenceOptions {
  /** What stands in the editor. */
  code(): string;
  /** Whether the reference may be shown without asking: the exercise is passed, or was given up. */
  isOpen(): boolean;
  giveUp(): void;
}

export class ReferenceFold {
  readonly root: HTMLDetailsElement;

  readonly #exercise: Exercise;
  readonly #options: ReferenceOptions;
  #isOpen: boolean | null = null;
  readonly #summary = h("summary");
  readonly #inside = h("div", { class: "reference" });

  constructor(exercise: Exercise, options: ReferenceOptions) {
    this.#exercise = exercise;
    this.#options = options;
    this.root = h("details", { class: "exercise-reference" }, this.#summary, this.#inside);
    this.root.addEventListener("toggle", () => this.#draw());
    this.update();
  }

  /** Follow whether the reference may be shown. */
  update(): void {
    const open = this.#options.isOpen();
    if (open === this.#isOpen) return;
    this.#isOpen = open;
    this.#summary.textContent = open ? "The reference, beside your answer" : "Give up, and see the reference";
    this.#draw();
  }

  /** Unfold, and bring into view. */
  reveal(): void {
    this.update();
    if (this.root.open) this.#draw();
    this.root.open = true;
    this.#summary.focus();
    this.root.scrollIntoView({ block: "nearest" });
  }

  /** Draw what belongs inside, with the code as it is now. */
  #draw(): void {
    if (!this.root.open) return;
    if (this.#isOpen) void this.#show();
    else this.#ask();
  }

  #ask(): void {
    const yes = h("button", { type: "button", class: "reference-yes" }, "Show the reference");
    const no = h("button", { type: "button", class: "reference-no" }, "Keep trying");
    yes.addEventListener("click", () => {
      this.#options.giveUp();
      this.update();
      this.#summary.focus();
    });
    no.addEventListener("click", () => {
      this.root.open = false;
      this.#summary.focus();
    });
    const text = "You have not passed this exercise yet. Read all three hints first: the last one is nearly the code.";
    this.#inside.replaceChildren(h("div", { class: "reference-ask" }, h("p", {}, text), h("p", {}, yes, no)));
  }

  async #show(): Promise<void> {
    try {
      const [reference, source] = await Promise.all([loadReference(this.#exercise.id), import("./source")]);
      this.#inside.replaceChildren(...draw(reference, this.#options.code(), source));
    } catch {
      const again = h("button", { type: "button" }, "Try again");
      again.addEventListener("click", () => this.#draw());
      const text = "The reference could not be loaded: check your connection.";
      this.#inside.replaceChildren(h("p", { role: "status" }, text), h("p", {}, again));
    }
  }
}

function draw(reference: Reference, code: string, source: typeof import("./source")): HTMLElement[] {
  const mine = source.symbolSources(code);
  mine.set("imports", source.imports(code).join("\n"));
  return reference.parts.map(([symbol, theirs]) => {
    const yours = mine.get(symbol) ?? "";
    const nothing = symbol === "imports" ? "none" : "not in your code";
    const sides =
      yours === theirs
        ? [side("Yours and the reference: the same", source.drawCode(theirs))]
        : [
            side("Yours", yours ? source.drawCode(yours) : h("p", { class: "reference-none" }, nothing)),
            side("Reference", source.drawCode(theirs)),
          ];
    return h(
      "section",
      { class: "reference-part", "aria-label": symbol },
      h("p", { class: "reference-symbol" }, symbol === "imports" ? symbol : h("code", {}, symbol)),
      h("div", { class: "reference-sides" }, ...sides),
    );
  });
}

function side(title: string, inside: HTMLElement): HTMLElement {
  return h("div", { class: "reference-side" }, h("p", { class: "reference-title" }, title), inside);
}
