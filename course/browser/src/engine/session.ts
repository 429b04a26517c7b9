/** One run of the engine, in a Python that the page's runner lends. It takes a step when it is asked for one. */

import type { TimelineStep } from "../pictures/timeline";
import { Gone, type Python } from "../python";
import { runner } from "../runner";
import { type Answers, passingAnswers } from "./answers";
import { loadModel } from "./model";

/** What a run is asked for: `Settings` in `course/page_engine/engine.py`. */
export interface Settings {
  prompts: string[];
  max_new_tokens: number;
  num_blocks: number;
  block_size: number;
  max_step_tokens: number;
  arrival_gap: number;
}

/** Whose the functions of one exercise are. */
export interface Origin {
  exercise: string;
  title: string;
  module: string;
  yours: boolean;
  /** Why an answer is not used, where there is one. */
  why: string | null;
}

/** What a step did. */
export interface Step extends TimelineStep {
  step: number;
  /** The blocks of each request that has any. */
  tables: Record<string, number[]>;
  num_free: number;
  /** What a request's text grew by. */
  text: Record<string, string>;
  /** Requests that can never be served, and why. */
  refused: Record<string, string>;
  done: boolean;
}

export type Opening = { kind: "loading" } | { kind: "checking"; count: number };

/** The engine cannot go on; the message names the part, the request and the step. */
export class Failed extends Error {}

/** A function of the reader's that has not come back after this long never will. */
const HANGS_AFTER_MS = 5000;

/** A symbol of the reader's and the request that it works for. */
type Place = [symbol: string, request: string | null];

export class Session {
  readonly origins: Origin[];
  readonly #python: Python;
  #steps = 0;
  #open = true;

  private constructor(python: Python, origins: Origin[]) {
    this.#python = python;
    this.origins = origins;
  }

  /** Load what is missing, check the reader's answers, and begin; null when `signal` stopped it. */
  static async open(settings: Settings, signal: AbortSignal, tell: (opening: Opening) => void): Promise<Session | null> {
    tell({ kind: "loading" });
    const loading = loadModel();
    loading.catch(() => {});
    const stopped = new Promise<null>((resolve) => signal.addEventListener("abort", () => resolve(null), { once: true }));
    const answers = await Promise.race([passingAnswers(signal, (count) => tell({ kind: "checking", count })), stopped]);
    if (answers === null || signal.aborted) return null;
    tell({ kind: "loading" });
    const model = await loading;
    const lent = runner.lend();
    const python = await Promise.race([lent, stopped]);
    if (python === null) {
      lent.then((late) => runner.takeBack(late), () => {});
      return null;
    }
    try {
      await python.loadModel(model);
      const begun = await watched(python, "the start", (listener) => python.startEngine(JSON.stringify(settings), JSON.stringify(answers.passing), listener));
      const { origins, failure } = JSON.parse(begun) as { origins: Origin[]; failure: string | null };
      if (failure !== null) throw new Failed(failure);
      if (signal.aborted) throw new Gone();
      return new Session(python, explained(origins, answers));
    } catch (error) {
      runner.takeBack(python);
      if (signal.aborted) return null;
      throw error instanceof Lost ? new Failed(error.message) : error;
    }
  }

  /** Take a step. `Failed` when the engine cannot go on. */
  async step(): Promise<Step> {
    const when = `step ${(this.#steps += 1)}`;
    try {
      const taken = JSON.parse(await watched(this.#python, when, (listener) => this.#python.stepEngine(listener))) as Step | { failure: string };
      if ("failure" in taken) throw new Failed(taken.failure);
      if (taken.done) this.#giveBack();
      return taken;
    } catch (error) {
      this.#giveBack();
      if (error instanceof Lost) throw new Failed(error.message);
      if (error instanceof Gone) throw new Failed(`Python ended, in ${when}`);
      throw error;
    }
  }

  /** End the run now, wherever it is. */
  kill(): void {
    if (!this.#open) return;
    this.#python.kill();
    this.#giveBack();
  }

  #giveBack(): void {
    if (this.#open) runner.takeBack(this.#python);
    this.#open = false;
  }
}

/** A function of the reader's does not come back, or has ended Python. */
class Lost extends Error {
  constructor([symbol, request]: Place, what: string, when: string) {
    super(`${symbol} ${what}, in ${when}${request === null ? "" : ` for request ${request}`}`);
  }
}

/** Wait for an answer, but not longer than a function of the reader's may take. */
async function watched(python: Python, when: string, ask: (listener: { events(place: string): void }) => Promise<string>): Promise<string> {
  const { promise: hung, reject } = Promise.withResolvers<never>();
  let clock: ReturnType<typeof setTimeout> | undefined;
  let place: Place | null = null;
  const hang = (where: Place) => reject(new Lost(where, `did not come back within ${HANGS_AFTER_MS / 1000} s and was stopped`, when));
  const events = (text: string) => {
    clearTimeout(clock);
    const where = (place = JSON.parse(text) as Place | null);
    if (where !== null) clock = setTimeout(() => hang(where), HANGS_AFTER_MS);
  };
  const answer = ask({ events });
  answer.catch(() => {});
  try {
    return await Promise.race([answer, hung]);
  } catch (error) {
    if (error instanceof Lost) python.kill();
    if (error instanceof Gone && place !== null) throw new Lost(place, "ended Python itself", when);
    throw error;
  } finally {
    clearTimeout(clock);
  }
}

function explained(origins: Origin[], { unused }: Answers): Origin[] {
  return origins.map((origin) => ({ ...origin, why: origin.why ?? unused[origin.exercise] ?? null }));
}
