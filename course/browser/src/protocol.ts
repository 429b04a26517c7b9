/** Messages between the page and its Python worker. One run at a time; `run` tells late messages from current ones. */

/** What a page's Pythons have in common. The page loads it once and hands it to each worker. */
export interface Runtime {
  wasm: WebAssembly.Module;
  /** The standard library, a zip of bytecode. */
  library: ArrayBuffer;
  /** The judge, the exercises and the reference, likewise. */
  course: ArrayBuffer;
}

/** The first message to a worker. */
export type Start = { kind: "start"; runtime: Runtime };

export type Request =
  | { kind: "check"; run: number; exercise: string; source: string }
  | { kind: "lost"; run: number; exercise: string; events: string; reason: LostReason };

/** Why there is no report: the run took too long, the reader stopped it, or the answer ended Python itself. */
export type LostReason = "timeout" | "stopped" | "exit";

export type Message =
  | { kind: "ready" }
  /** Python could not be started; nothing more will come. */
  | { kind: "broken"; message: string }
  /** The answer is about to run: its time starts here. */
  | { kind: "started"; run: number }
  /** What the answer did since the last message, as one JSON array. */
  | { kind: "events"; run: number; events: string }
  | { kind: "report"; run: number; report: string }
  /** The judge itself failed: an error of the course's, not of the answer. */
  | { kind: "failed"; run: number; message: string }
  /** The interpreter is gone. */
  | { kind: "gone"; run: number };
