/** A Python in a worker, seen from the page: it becomes ready, takes one request at a time, and can be killed. */

import { loadArchive } from "./archives";
import { asset } from "./assets";
import type { Model } from "./engine/model";
import type { Exercise } from "./exercise";
import { onceEach } from "./once";
import type { LostReason, Message, Request, Start } from "./protocol";
import { loadRuntime } from "./runtime";

export interface RunListener {
  started?(): void;
  events?(events: string): void;
}

/** The interpreter ended, or was ended, before it had answered. */
export class Gone extends Error {}

/** The worker does not take a request up: an answer has closed it. */
export class Deaf extends Gone {}

/** A worker that is ready takes up a request at once; one that has not after this long never will. */
const ANSWERS_WITHIN_MS = 3000;

interface Pending {
  run: number;
  listener: RunListener;
  /** Until the request is taken up. */
  clock: ReturnType<typeof setTimeout>;
  resolve(report: string): void;
  reject(error: Error): void;
}

export class Python {
  /** Settles when Python has loaded, or could not. */
  readonly ready: Promise<void>;
  /** False once it was killed, or broke. */
  alive = true;
  /** An answer has run in it. */
  hasRun = false;

  readonly #worker: Worker;
  readonly #loading = Promise.withResolvers<void>();
  #loaded = false;
  #pending: Pending | null = null;
  #runs = 0;
  /** Settles when the last request that was made has been answered. */
  #idle: Promise<unknown> = Promise.resolve();
  readonly #unpacked = new Set<string>();
  #hasModel = false;

  constructor() {
    this.ready = this.#loading.promise;
    // Whoever waits sees the error; a spare that nobody waits for must not raise one.
    this.ready.catch(() => {});
    this.#worker = new Worker(asset("worker.js"), { type: "module", name: "python" });
    loadRuntime().then(
      (runtime) => this.#worker.postMessage({ kind: "start", runtime } satisfies Start),
      (error: unknown) => this.#end(error instanceof Error ? error : new Error(String(error))),
    );
    this.#worker.addEventListener("message", ({ data }: MessageEvent<unknown>) => {
      if (isMessage(data)) this.#receive(data);
    });
    this.#worker.addEventListener("error", (event) => {
      event.preventDefault();
      if (!this.#loaded) this.#end(new Error(event.message || "the worker could not be started"));
    });
  }

  /**
   * Fetch, unpack and import what a check of the exercise needs, once; what failed is tried again the next time.
   *
   * A Python that cannot take in what was fetched is broken, and ends.
   */
  readonly prepare = onceEach((exercise: Exercise) => this.#prepare(exercise));

  /** Run every check of an exercise on `source` and return the report, as JSON text. The exercise is prepared. */
  check(exercise: string, source: string, listener: RunListener): Promise<string> {
    this.hasRun = true;
    return this.#ask((run) => ({ kind: "check", run, exercise, source }), listener);
  }

  /** Return the report, as JSON text, of a run that another Python did not survive. The exercise is prepared. */
  lost(exercise: string, events: string, reason: LostReason): Promise<string> {
    return this.#ask((run) => ({ kind: "lost", run, exercise, events, reason }), {});
  }

  /** Load the engine's model. It is this Python's from then on. */
  async loadModel({ config, weights, archives }: Model): Promise<void> {
    if (this.#hasModel) return;
    await this.#unpack(archives);
    await this.#ask((run) => ({ kind: "model", run, config, weights }), {});
    this.#hasModel = true;
  }

  /** Begin a run of the engine; the answer says whose its parts are. `listener.events` hears where the reader's are. */
  startEngine(settings: string, answers: string, listener: RunListener): Promise<string> {
    this.hasRun = true;
    return this.#ask((run) => ({ kind: "engine", run, settings, answers }), listener);
  }

  /** Take the engine's next step and return it. */
  stepEngine(listener: RunListener): Promise<string> {
    return this.#ask((run) => ({ kind: "step", run }), listener);
  }

  kill(): void {
    this.#end(new Gone());
  }

  async #prepare({ id, archives }: Exercise): Promise<void> {
    await this.#unpack(archives);
    await this.#ask((run) => ({ kind: "prepare", run, exercise: id }), {}).catch((error: Error) => this.#break(error));
  }

  async #unpack(names: readonly string[]): Promise<void> {
    const missing = names.filter((name) => !this.#unpacked.has(name));
    const [archives] = await Promise.all([Promise.all(missing.map(loadArchive)), this.ready]);
    if (missing.length === 0) return;
    await this.#ask((run) => ({ kind: "unpack", run, archives }), {}).catch((error: Error) => this.#break(error));
    for (const name of missing) this.#unpacked.add(name);
  }

  /** Make a request, when the one before has been answered. */
  #ask(request: (run: number) => Request, listener: RunListener): Promise<string> {
    const answer = this.#idle.then(() => this.#post(request, listener));
    this.#idle = answer.catch(() => {});
    return answer;
  }

  #post(request: (run: number) => Request, listener: RunListener): Promise<string> {
    if (!this.alive) return Promise.reject(new Gone());
    return new Promise((resolve, reject) => {
      const run = ++this.#runs;
      const clock = setTimeout(() => this.#end(new Deaf("the worker does not answer")), ANSWERS_WITHIN_MS);
      this.#pending = { run, listener, clock, resolve, reject };
      this.#worker.postMessage(request(run));
    });
  }

  #receive(message: Message): void {
    if (message.kind === "ready") {
      this.#loaded = true;
      return this.#loading.resolve();
    }
    if (message.kind === "broken") {
      return this.#loaded ? undefined : this.#end(new Error(message.message));
    }
    const pending = this.#pending;
    if (!pending || message.run !== pending.run) return;
    switch (message.kind) {
      case "started":
        clearTimeout(pending.clock);
        return pending.listener.started?.();
      case "events":
        return pending.listener.events?.(message.events);
      case "report":
        this.#pending = null;
        return pending.resolve(message.report);
      case "failed":
        this.#pending = null;
        return pending.reject(new Error(message.message));
      case "gone":
        return this.kill();
    }
  }

  #break(error: Error): never {
    this.#end(error);
    throw error;
  }

  #end(error: Error): void {
    this.alive = false;
    this.#worker.terminate();
    this.#loading.reject(error);
    clearTimeout(this.#pending?.clock);
    this.#pending?.reject(error);
    this.#pending = null;
  }
}

/** An answer can post messages of its own (`import js`); what has no kind is none of ours. */
function isMessage(data: unknown): data is Message {
  return typeof data === "object" && data !== null && "kind" in data;
}
