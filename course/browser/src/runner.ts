/**
 * Runs checks, one at a time, in a Python that is made at the first check and replaced whenever it is killed.
 *
 * There is one runner a page. It outlives instant navigation, so Python is loaded once a visit.
 */

import type { Exercise, Report } from "./exercise";
import type { LostReason } from "./protocol";
import { Python } from "./python";
import { watch } from "./watch";

/** What a reader may be told while they wait. */
export type Phase = "queued" | "loading" | "running" | LostReason;

/** The run was stopped before the answer had begun to run: there is nothing to report. */
export class StoppedEarly extends Error {}

/** Python could not be loaded. */
export class NotLoaded extends Error {}

/** A run this long may well have to be killed, so another Python starts to load beside it. */
const SPARE_AFTER_MS = 300;

export class Runner {
  #python: Python | null = null;
  #spare: Python | null = null;
  #last: Promise<unknown> = Promise.resolve();
  #busy = false;

  /** Check `source`. Aborting `signal` stops it, wherever it is. */
  check(exercise: Exercise, source: string, signal: AbortSignal, tell: (phase: Phase) => void): Promise<Report> {
    if (this.#busy) tell("queued");
    const turn = this.#last.then(async () => {
      this.#busy = true;
      try {
        return JSON.parse(await this.#run(exercise, source, signal, tell)) as Report;
      } finally {
        this.#busy = false;
      }
    });
    this.#last = turn.catch(() => {});
    return turn;
  }

  /** The reader has turned to an exercise: let the Python that is there, if one is, get ready to check it. */
  expect(exercise: Exercise): void {
    if (this.#python?.alive && exercise.runs_in_page) void this.#python.prepare(exercise);
  }

  /** Lend a Python that no check is running in; `takeBack` it, alive or not. Checks go on in another one meanwhile. */
  async lend(): Promise<Python> {
    const python = this.#busy ? (this.#spare?.alive ? this.#spare : new Python()) : this.#take();
    if (python === this.#python) this.#python = null;
    if (python === this.#spare) this.#spare = null;
    await loaded(python);
    return python;
  }

  /** Take back what was lent. In place of one that was killed another starts to load, so that it is there when needed. */
  takeBack(python: Python): void {
    if (this.#python?.alive && this.#spare?.alive) return python.kill();
    const whole = python.alive ? python : new Python();
    if (this.#python?.alive) this.#spare = whole;
    else this.#python = whole;
  }

  async #run(exercise: Exercise, source: string, signal: AbortSignal, tell: (phase: Phase) => void): Promise<string> {
    const python = await this.#ready(exercise, signal, tell);
    tell("running");
    const spare = setTimeout(() => void (this.#spare ??= new Python()).prepare(exercise), SPARE_AFTER_MS);
    const outcome = await watch(python, exercise, source, signal).finally(() => clearTimeout(spare));
    if (outcome.kind === "report") return outcome.report;

    python.kill();
    // A deaf Python has not seen this answer yet: the next one shall.
    if (outcome.kind === "deaf") return this.#run(exercise, source, signal, tell);
    tell(outcome.reason);
    const next = await this.#prepared(exercise);
    return next.lost(exercise.id, outcome.events, outcome.reason);
  }

  async #ready(exercise: Exercise, signal: AbortSignal, tell: (phase: Phase) => void): Promise<Python> {
    if (signal.aborted) throw new StoppedEarly();
    tell("loading");
    const { promise: stopped, reject } = Promise.withResolvers<never>();
    signal.addEventListener("abort", () => reject(new StoppedEarly()), { once: true });
    const python = await Promise.race([this.#prepared(exercise), stopped]);
    if (signal.aborted) throw new StoppedEarly();
    return python;
  }

  /** Return the Python to use now, when it has all that a check of the exercise needs. */
  async #prepared(exercise: Exercise): Promise<Python> {
    const python = this.#take();
    try {
      await python.prepare(exercise);
    } catch (error) {
      // An earlier answer has closed or damaged it: the next one is whole.
      if (python.hasRun && !python.alive) return this.#prepared(exercise);
      throw new NotLoaded(String(error));
    }
    return python;
  }

  /** Return the Python to use now: the current one, else the spare, else one that starts to load. */
  #take(): Python {
    if (this.#python?.alive) return this.#python;
    this.#python = this.#spare?.alive ? this.#spare : new Python();
    this.#spare = null;
    return this.#python;
  }
}

async function loaded(python: Python): Promise<void> {
  try {
    await python.ready;
  } catch (error) {
    throw new NotLoaded(String(error));
  }
}

export const runner = new Runner();
