/** A Python in a worker, seen from the page: it becomes ready, takes one request at a time, and can be killed. */

import { asset } from "./assets";
import type { LostReason, Message, Request } from "./protocol";

export interface RunListener {
  started?(): void;
  events?(events: string): void;
}

export class Python {
  /** Settles when Python has loaded, or could not. */
  readonly ready: Promise<void>;
  /** False once it was killed, or broke. */
  alive = true;

  readonly #worker: Worker;
  #pending: { run: number; listener: RunListener; resolve(report: string): void; reject(error: Error): void } | null =
    null;
  #loaded = false;
  #runs = 0;
  #settle!: { resolve(): void; reject(error: Error): void };

  constructor() {
    this.ready = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    // Whoever waits sees the error; a spare that nobody waits for must not raise one.
    this.ready.catch(() => {});
    this.#worker = new Worker(asset("worker.js"), { type: "module", name: "python" });
    this.#worker.addEventListener("message", ({ data }: MessageEvent<Message>) => this.#receive(data));
    this.#worker.addEventListener("error", (event) => {
      event.preventDefault();
      this.#break(new Error(event.message || "the worker could not be started"));
    });
  }

  /** Run every check of an exercise on `source` and return the report, as JSON text. */
  check(exercise: string, source: string, listener: RunListener): Promise<string> {
    return this.#ask((run) => ({ kind: "check", run, exercise, source }), listener);
  }

  /** Return the report, as JSON text, of a run that another Python did not survive. */
  lost(exercise: string, events: string, reason: LostReason): Promise<string> {
    return this.#ask((run) => ({ kind: "lost", run, exercise, events, reason }), {});
  }

  kill(): void {
    this.#break(new Error("killed"));
  }

  #ask(request: (run: number) => Request, listener: RunListener): Promise<string> {
    return new Promise((resolve, reject) => {
      const run = ++this.#runs;
      this.#pending = { run, listener, resolve, reject };
      this.#worker.postMessage(request(run));
    });
  }

  #receive(message: Message): void {
    if (message.kind === "ready") {
      this.#loaded = true;
      return this.#settle.resolve();
    }
    if (message.kind === "broken") return this.#loaded ? undefined : this.#break(new Error(message.message));
    const pending = this.#pending;
    if (!pending || message.run !== pending.run) return;
    switch (message.kind) {
      case "started":
        return pending.listener.started?.();
      case "events":
        return pending.listener.events?.(message.events);
      case "report":
        this.#pending = null;
        return pending.resolve(message.report);
      case "failed":
        return this.#break(new Error(message.message));
    }
  }

  #break(error: Error): void {
    this.alive = false;
    this.#worker.terminate();
    this.#settle.reject(error);
    this.#pending?.reject(error);
    this.#pending = null;
  }
}
