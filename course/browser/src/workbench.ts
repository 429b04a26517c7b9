/** The frame around the editor: file name, buttons, the status line that is read aloud, the verdict. */

import { h } from "./dom";
import type { Exercise, Report } from "./exercise";
import type { Phase } from "./runner";
import type { Copy, CopyReason } from "./store";
import { drawVerdict, summary } from "./verdict";

export interface Actions {
  check(): void;
  stop(): void;
  reset(): void;
  /** Show the reference beside the answer. */
  compare(): void;
}

const ON_A_MAC = /Mac|iPhone|iPad/.test(navigator.platform);

const PHASES: Record<Phase, string> = {
  queued: "Waiting for the other check to end…",
  loading: "Loading Python: once a visit, a few seconds…",
  running: "Running the checks…",
  timeout: "Out of time. Finding out how far your code came…",
  stopped: "Stopped. Finding out how far your code came…",
  exit: "Python ended. Finding out how far your code came…",
};

const REASONS: Record<CopyReason, string> = {
  reset: "before a reset",
  import: "before an import",
  tab: "from another tab",
  version: "before another version",
  unreadable: "a record that this version cannot read",
};

function describe(copy: Copy): string {
  const lines = copy.code.trimEnd().split("\n").length;
  const at = new Date(copy.at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  return `${at}, ${REASONS[copy.why] ?? "earlier"}, ${lines} ${lines === 1 ? "line" : "lines"}`;
}

export class Workbench {
  static readonly HELP = "Tab indents, Control and Space completes. Press Escape, then Tab, to leave the editor.";

  readonly root: HTMLElement;
  readonly editor = h("div", { class: "bench-editor" });

  readonly #exercise: Exercise;
  readonly #check = h("button", { type: "button", class: "bench-check", "aria-keyshortcuts": "Control+Enter Meta+Enter" });
  readonly #stop = h("button", { type: "button", class: "bench-stop", hidden: true }, "Stop");
  readonly #reset = h("button", { type: "button", class: "bench-reset" }, "Reset");
  readonly #passed = h("span", { class: "bench-passed", hidden: true }, "passed");
  readonly #status = h("p", { class: "bench-status", role: "status" });
  readonly #notes = h("div", { class: "bench-notes", role: "status" });
  readonly #versions = h("button", { type: "button", class: "bench-versions", "aria-expanded": "false", hidden: true });
  readonly #versionList = h("ul", { class: "bench-version-list", "aria-label": "Versions", hidden: true });
  readonly #verdict = h("section", { class: "bench-verdict", "aria-label": "Verdict", hidden: true });
  readonly #compare = h("button", { type: "button", class: "bench-compare" }, "Compare with the reference");
  #undo: (() => void) | null = null;

  constructor(exercise: Exercise, actions: Actions) {
    this.#exercise = exercise;
    this.#check.append("Check ", h("kbd", { "aria-hidden": "true" }, ON_A_MAC ? "⌘ ↵" : "Ctrl ↵"));
    this.#check.addEventListener("click", () => actions.check());
    this.#compare.addEventListener("click", () => actions.compare());
    this.#stop.addEventListener("click", () => actions.stop());
    this.#reset.addEventListener("click", () => (this.#undo ? this.#takeBack() : actions.reset()));
    this.#versions.addEventListener("click", () => this.#unfoldVersions(this.#versionList.hasAttribute("hidden")));
    const judge = h("code", {}, `python practice/judge.py check ${exercise.id}`);
    const advice = exercise.runs_in_page
      ? ["What you write stays in this browser. A check in the page is advice: in a clone, the judge is ", judge]
      : ["What you write stays in this browser. This exercise needs PyTorch, which a page has not. Export your work, import it in a clone, and run ", judge];
    this.#check.hidden = !exercise.runs_in_page;
    this.root = h(
      "div",
      { class: "bench", role: "group", "aria-label": `Workbench: ${exercise.title}` },
      h(
        "div",
        { class: "bench-head" },
        h("span", { class: "bench-file" }, exercise.file),
        this.#passed,
        this.#versions,
        this.#reset,
      ),
      this.#versionList,
      this.editor,
      h("div", { class: "bench-bar" }, this.#check, this.#stop, this.#status),
      this.#notes,
      this.#verdict,
      h("p", { class: "bench-foot" }, `${Workbench.HELP} `, ...advice),
    );
  }

  start(): void {
    this.#swap(this.#check, this.#stop);
    this.#verdict.hidden = true;
    this.root.dataset["state"] = "running";
  }

  tell(phase: Phase): void {
    this.#status.textContent = PHASES[phase];
  }

  show(report: Report): void {
    this.#status.textContent = summary(report, this.#exercise);
    this.root.dataset["state"] = report.status === "pass" ? "pass" : report.unfinished ? "unfinished" : "fail";
    this.#verdict.replaceChildren(drawVerdict(report, this.#exercise));
    if (report.status === "pass") this.#verdict.append(this.#compare);
    this.#verdict.hidden = false;
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.#verdict.firstElementChild?.firstElementChild?.scrollIntoView({
      block: "nearest",
      behavior: calm ? "instant" : "smooth",
    });
  }

  /** Say that there is no report, and why. */
  fail(text: string, error?: unknown): void {
    this.#status.textContent = text;
    this.root.dataset["state"] = "broken";
    if (error === undefined) return;
    this.#verdict.replaceChildren(
      h("details", { class: "fold" }, h("summary", {}, "What went wrong"), h("pre", { tabindex: "0" }, String(error))),
    );
    this.#verdict.hidden = false;
  }

  end(): void {
    this.#swap(this.#stop, this.#check);
  }

  /** The verdict belongs to the code that was checked; once it is edited, the frame's colour no longer speaks. */
  edited(): void {
    delete this.root.dataset["state"];
    this.#setUndo(null);
  }

  /** Say something that stays until it is taken back with "". There is one note of a kind. */
  note(kind: string, text: string, actions: Record<string, () => void> = {}): void {
    const before = this.#notes.querySelector(`[data-kind="${kind}"]`);
    if (before?.firstChild?.textContent === text) return;
    before?.remove();
    if (text === "") return;
    const buttons = Object.entries(actions).map(([label, act]) => {
      const button = h("button", { type: "button" }, label);
      button.addEventListener("click", act);
      return button;
    });
    this.#notes.append(h("p", { class: "bench-note", "data-kind": kind }, h("span", {}, text), ...buttons));
  }

  /** List the texts that may be put back into the editor. */
  showVersions(copies: Copy[], putBack: (copy: Copy) => void): void {
    this.#versions.hidden = copies.length === 0;
    this.#versions.textContent = `Versions (${copies.length})`;
    if (copies.length === 0) this.#unfoldVersions(false);
    const items = copies.map((copy) => {
      const button = h("button", { type: "button" }, "Put it in the editor");
      button.addEventListener("click", () => {
        putBack(copy);
        this.#unfoldVersions(false);
        this.#status.textContent = "The version is in the editor; what stood there is a version now.";
      });
      return h("li", {}, h("span", {}, describe(copy)), button);
    });
    this.#versionList.replaceChildren(...items);
  }

  #unfoldVersions(open: boolean): void {
    this.#versionList.hidden = !open;
    this.#versions.setAttribute("aria-expanded", String(open));
  }

  showPassed(passed: boolean): void {
    this.#passed.hidden = !passed;
  }

  offerUndo(undo: () => void): void {
    this.#setUndo(undo);
    this.#status.textContent = "Back to the stub.";
    this.#verdict.hidden = true;
  }

  #takeBack(): void {
    const undo = this.#undo;
    this.#setUndo(null);
    undo?.();
    this.#status.textContent = "Your code is back.";
  }

  #setUndo(undo: (() => void) | null): void {
    this.#undo = undo;
    this.#reset.textContent = undo ? "Undo reset" : "Reset";
  }

  /** Hide one button and show the other; the keyboard's focus goes with it. */
  #swap(from: HTMLButtonElement, to: HTMLButtonElement): void {
    const focused = document.activeElement === from;
    to.hidden = false;
    from.hidden = true;
    if (focused) to.focus();
  }
}
