/** Watches one run: it ends with a report, or it is lost, or it never began. */

import type { Exercise } from "./exercise";
import type { LostReason } from "./protocol";
import { Gone, type Python } from "./python";

export type Outcome =
  | { kind: "report"; report: string }
  /** `events` is what had been heard of the run, as JSON. */
  | { kind: "lost"; reason: LostReason; events: string }
  /** The worker does not answer: an earlier answer has closed it. */
  | { kind: "deaf" };

/** A worker that is ready takes up a request at once; one that has not after this long never will. */
const ANSWERS_WITHIN_MS = 3000;

/** Check `source`. The exercise's time begins when the answer begins to run. Rejects when the judge itself fails. */
export function watch(python: Python, exercise: Exercise, source: string, signal: AbortSignal): Promise<Outcome> {
  const events: string[] = [];
  const { promise, resolve, reject } = Promise.withResolvers<Outcome>();
  const lose = (reason: LostReason) => resolve({ kind: "lost", reason, events: `[${events.join(",")}]` });
  const stop = () => lose("stopped");

  let clock = setTimeout(() => resolve({ kind: "deaf" }), ANSWERS_WITHIN_MS);
  signal.addEventListener("abort", stop);
  const report = python.check(exercise.id, source, {
    started: () => {
      clearTimeout(clock);
      clock = setTimeout(() => lose("timeout"), exercise.time_limit * 1000);
    },
    events: (batch) => events.push(batch),
  });
  report.then(
    (text) => resolve({ kind: "report", report: text }),
    (error: unknown) => (error instanceof Gone ? lose("exit") : reject(error)),
  );
  return promise.finally(() => {
    clearTimeout(clock);
    signal.removeEventListener("abort", stop);
  });
}
