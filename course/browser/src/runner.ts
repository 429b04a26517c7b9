/**
 * Runs checks, one at a time, in a Python that is made at the first check and replaced whenever it is killed.
 *
 * There is one runner a page. It outlives instant navigation, so Python is loaded once a visit.
 */

import type { Exercise, Report } from "./exercise";
import type { LostReason } from "./protocol";
import { Python } from "./python";

/** What a reader may be told while they wait. */
export type Phase = "queued" | "loading" | "running" | "timeout" | "stopped" | "crashed";

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

  async #run(exercise: Exercise, source: string, signal: AbortSignal, tell: (phase: Phase) => void): Promise<string> {
    if (signal.aborted) throw new StoppedEarly();
    const python = this.#take();
    tell("loading");
    if ((await Promise.race([loaded(python), aborted(signal)])) === ABORTED) throw new StoppedEarly();
    tell("running");

    const events: string[] = [];
    const spare = setTimeout(() => (this.#spare ??= new Python()), SPARE_AFTER_MS);
    const limit = timer();
    const report = python.check(exercise.id, source, {
      started: () => limit.start(exercise.time_limit * 1000),
      events: (batch) => events.push(batch),
    });
    // A crash is one way a run ends, and not the reader's mistake to see as an error of the page.
    const ended: Promise<string | LostReason> = report.catch(() => "crashed");
    const outcome = await Promise.race([
      ended.then((value) => ({ value })),
      limit.over.then(() => "timeout" as const),
      aborted(signal).then(() => "stopped" as const),
    ]);
    clearTimeout(spare);
    limit.stop();
    if (typeof outcome === "object" && outcome.value !== "crashed") return outcome.value;

    const reason = typeof outcome === "object" ? "crashed" : outcome;
    python.kill();
    tell(reason);
    const next = this.#take();
    await loaded(next);
    return next.lost(exercise.id, `[${events.join(",")}]`, reason);
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

const ABORTED = Symbol("aborted");

function aborted(signal: AbortSignal): Promise<typeof ABORTED> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(ABORTED);
    else signal.addEventListener("abort", () => resolve(ABORTED), { once: true });
  });
}

/** A clock that is started once, later. */
function timer(): { start(ms: number): void; stop(): void; over: Promise<void> } {
  let handle: ReturnType<typeof setTimeout> | undefined;
  let ring: () => void;
  const over = new Promise<void>((resolve) => (ring = resolve));
  return { start: (ms) => (handle = setTimeout(() => ring(), ms)), stop: () => clearTimeout(handle), over };
}

export const runner = new Runner();
