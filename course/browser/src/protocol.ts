/** Messages between the page and its Python worker. One run at a time; `run` tells late messages from current ones. */

/** What a page's Pythons have in common. The page loads it once and hands it to each worker. */
export interface Runtime {
  wasm: WebAssembly.Module;
  /** The standard library, a zip of bytecode. */
  library: ArrayBuffer;
  /** The archive that every check needs: the judge. */
  judge: ArrayBuffer;
}

/** The first message to a worker. */
export type Start = { kind: "start"; runtime: Runtime };

export type Request =
  /** Put more of the course's code beside the judge: `archives.ts`. */
  | { kind: "unpack"; run: number; archives: ArrayBuffer[] }
  /** Import what a check of the exercise will. Its archives are unpacked. */
  | { kind: "prepare"; run: number; exercise: string }
  | { kind: "check"; run: number; exercise: string; source: string }
  | { kind: "lost"; run: number; exercise: string; events: string; reason: LostReason }
  /** Load the engine's model; it stays for all runs of the engine. */
  | { kind: "model"; run: number; config: string; weights: ArrayBuffer }
  /** Begin a run of the engine, in place of the last one. */
  | { kind: "engine"; run: number; settings: string; answers: string }
  /** Take the engine's next step. */
  | { kind: "step"; run: number };

/** Why there is no report: the run took too long, the reader stopped it, or the answer ended Python itself. */
export type LostReason = "timeout" | "stopped" | "exit";

export type Message =
  | { kind: "ready" }
  /** Python could not be started; nothing more will come. */
  | { kind: "broken"; message: string }
  /** The request is taken up. In a check, the answer's time starts here. */
  | { kind: "started"; run: number }
  /** As JSON: what the answer did since the last message, or which function of the reader's the engine is in. */
  | { kind: "events"; run: number; events: string }
  /** The answer to a request, as JSON. */
  | { kind: "report"; run: number; report: string }
  /** The judge itself failed: an error of the course's, not of the answer. */
  | { kind: "failed"; run: number; message: string }
  /** The interpreter is gone. */
  | { kind: "gone"; run: number };
