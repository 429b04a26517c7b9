/**
 * `<course-exercise name="…">`: what the page holds without JavaScript (task, stub, hints), made workable.
 *
 * The element keeps what is inside it and puts a workbench in the stub's place. Everything that runs belongs to
 * `runner`; an element that leaves the page stops its own run and nothing else.
 */

import type { Editor } from "./editor";
import { type Exercise, loadExercise, type Report } from "./exercise";
import { unfoldInTurn } from "./hints";
import { ReferenceFold } from "./reference";
import { NotLoaded, type Phase, runner, StoppedEarly } from "./runner";
import type { Copy, Outcome } from "./store";
import { Work } from "./work";
import { download } from "./work-file";
import { Workbench } from "./workbench";

export class CourseExercise extends HTMLElement {
  /** Settles when the editor is there. */
  ready: Promise<void> = Promise.resolve();

  #exercise: Exercise | null = null;
  #work: Work | null = null;
  #editor: Editor | null = null;
  #bench: Workbench | null = null;
  #reference: ReferenceFold | null = null;
  #run: AbortController | null = null;
  #isRefreshing = false;

  get name(): string {
    return this.getAttribute("name") ?? "";
  }

  /** What stands in the editor. */
  get source(): string {
    return this.#editor?.code ?? "";
  }

  set source(code: string) {
    if (this.#editor) this.#editor.code = code;
  }

  connectedCallback(): void {
    this.ready = this.#open();
    this.ready.catch((error: unknown) => {
      this.append(Object.assign(document.createElement("p"), { className: "exercise-note", textContent: String(error) }));
    });
  }

  disconnectedCallback(): void {
    this.stop();
    this.#work?.leave();
    this.#editor?.destroy();
    this.#editor = null;
  }

  async #open(): Promise<void> {
    unfoldInTurn(this);
    const [exercise, { Editor }] = await Promise.all([loadExercise(this.name), import("./editor")]);
    if (!this.isConnected || this.#editor) return;
    const stub = this.querySelector(".exercise-stub");
    if (!stub) throw new Error(`the page has no stub for ${this.name}`);

    const work = (this.#work = new Work(exercise));
    const bench = (this.#bench ??= new Workbench(exercise, {
      check: () => void this.check(),
      stop: () => this.stop(),
      reset: () => this.#reset(),
      compare: () => this.#reference?.reveal(),
    }));
    bench.root.addEventListener("focusin", () => runner.expect(exercise));
    stub.after(bench.root);
    this.#reference?.root.remove();
    this.#reference = new ReferenceFold(exercise, {
      code: () => this.source,
      isOpen: () => work.passed || work.gaveUp,
      giveUp: () => void work.giveUp(),
    });
    this.append(this.#reference.root);
    this.classList.add("is-ready");
    this.#exercise = exercise;
    this.#editor = new Editor({
      host: bench.editor,
      code: work.code,
      label: `Your code for “${exercise.title}”`,
      help: Workbench.HELP,
      onChange: (code) => this.#changed(code),
      onCheck: () => void this.check(),
    });
    work.follow(
      () => this.#contest(),
      () => this.#refresh(),
    );
    this.#refresh();
  }

  /** Check what stands in the editor; the report, or null when the run was stopped before it began. */
  async check(): Promise<Report | null> {
    const exercise = this.#exercise;
    const bench = this.#bench;
    if (!exercise || !bench || !this.#work || this.#run) return null;
    if (!exercise.runs_in_page) {
      bench.fail(`This needs PyTorch, which a page has not: in a clone, python practice/judge.py check ${exercise.id}`);
      return null;
    }
    const run = (this.#run = new AbortController());
    bench.start();
    try {
      const report = await runner.check(exercise, this.source, run.signal, (phase: Phase) => bench.tell(phase));
      if (report.status === "pass") this.#say(this.#work.pass());
      bench.show(report);
      this.dispatchEvent(new CustomEvent("course:report", { bubbles: true, detail: report }));
      return report;
    } catch (error) {
      bench.fail(...explain(error));
      return null;
    } finally {
      this.#run = null;
      bench.end();
    }
  }

  stop(): void {
    this.#run?.abort();
  }

  /** Put `code` into the editor; what stood there stays as a version. */
  replace(code: string, why: Copy["why"]): void {
    if (code === this.source) return;
    this.#work?.setAside(why);
    this.source = code;
  }

  #changed(code: string): void {
    if (!this.#work || !this.#bench) return;
    this.#say(this.#work.keep(code));
    this.#bench.edited();
    this.#refresh();
  }

  /** Show what the record says: passed or not, its versions, the stub that it was begun from. Once for many changes. */
  #refresh(): void {
    if (this.#isRefreshing) return;
    this.#isRefreshing = true;
    queueMicrotask(() => {
      this.#isRefreshing = false;
      this.#showRecord();
    });
  }

  #showRecord(): void {
    const [work, bench] = [this.#work, this.#bench];
    if (!work || !bench) return;
    bench.showPassed(work.passed);
    bench.showVersions(work.copies, (copy) => this.replace(copy.code, "version"));
    this.#reference?.update();
    if (!work.isContested) bench.note("tab", "");
    bench.note("stub", work.stubChanged ? STUB_CHANGED : "", {
      "Keep mine": () => {
        work.acceptStub();
        this.#refresh();
      },
    });
  }

  /** Another tab has other code: nothing is written over until the learner has chosen. */
  #contest(): void {
    const [work, bench] = [this.#work, this.#bench];
    if (!work || !bench) return;
    bench.note("tab", "Another tab has other code for this exercise. Both are kept; which goes on?", {
      "Take the other tab’s": () => {
        this.source = work.takeOther();
        this.#refresh();
      },
      "Keep this one": () => {
        this.#say(work.keepMine());
        this.#refresh();
      },
    });
  }

  #say(outcome: Outcome): void {
    this.#bench?.note("storage", STORAGE[outcome], { "Export your work": download });
  }

  #reset(): void {
    const exercise = this.#exercise;
    if (!exercise || !this.#bench) return;
    const before = this.source;
    this.replace(exercise.stub, "reset");
    this.#bench.offerUndo(() => {
      this.source = before;
    });
  }
}

const STUB_CHANGED = "The stub has changed since you wrote this. Your code is kept; Reset shows the new stub.";

const STORAGE: Record<Outcome, string> = {
  kept: "",
  full: "This browser’s storage is full, so it does not keep your code. It stays here as long as this tab is open.",
  refused:
    "This browser refuses to keep your code. It stays here as long as this tab is open.",
};

/** Say why there is no report; the second part is for whoever wants to look into it. */
function explain(error: unknown): [text: string, detail?: unknown] {
  if (error instanceof StoppedEarly) return ["Stopped before your code ran."];
  if (error instanceof NotLoaded) {
    return ["Python could not be loaded. Your code is kept: check your connection and press Check again.", error];
  }
  return ["The judge itself failed; that is no verdict on your code, which is kept.", error];
}
