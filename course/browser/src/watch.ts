/** Watches one run: it ends with a report, or it is lost, or it never began. */

import type { Exercise } from "./exercise";
import type { LostReason } from "./protocol";
import { Deaf, Gone, type Python } from "./python";

export type Outcome =
  | { kind: "report"; report: string }
  /** `events` is what had been heard of the run, as JSON. */
  | { kind: "lost"; reason: LostReason; events: string }
  /** The answer has not run: an earlier one has closed the worker. */
  | { kind: "deaf" };

/** Check `source`. The exercise's time begins when the answer begins to run. Rejects when the judge itself fails. */
export function watch(python: Python, exercise: Exercise, source: string, signal: AbortSignal): Promise<Outcome> {
  const events: string[] = [];
  const { promise, resolve, reject } = Promise.withResolvers<Outcome>();
  const lose = (reason: LostReason) => resolve({ kind: "lost", reason, events: `[${events.join(",")}]` });
  const stop = () => lose("stopped");

  let clock: ReturnType<typeof setTimeout> | undefined;
  signal.addEventListener("abort", stop);
  const report = python.check(exercise.id, source, {
    started: () => {
      clock = setTimeout(() => lose("timeout"), exercise.time_limit * 1000);
    },
    events: (batch) => events.push(batch),
  });
  report.then(
    (text) => resolve({ kind: "report", report: text }),
    (error: unknown) => {
      if (error instanceof Deaf) resolve({ kind: "deaf" });
      else if (error instanceof Gone) lose("exit");
      else reject(error);
    },
  );
  return promise.finally(() => {
    clearTimeout(clock);
    signal.removeEventListener("abort", stop);
  });
}
