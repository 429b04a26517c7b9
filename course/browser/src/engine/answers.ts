/** The reader's answers that the engine can be made of: those that pass their checks now. */

import { catalogue } from "../catalogue";
import { loadExercise } from "../exercise";
import { runner } from "../runner";
import { load } from "../store";

/** The modules that an engine in the page is made of, from `course/page_engine/parts.py`. */
declare const ENGINE_MODULES: string[];

const FILES = new Set(ENGINE_MODULES.map((module) => `practice/${module}.py`));

export interface Answers {
  /** The text of each answer that passes, by its exercise. */
  passing: Record<string, string>;
  /** Why the others are not used, by exercise. */
  unused: Record<string, string>;
}

/** Times its limit that an answer may take here: it has passed before, so a slow machine is likelier than an endless loop. */
const PATIENCE = 5;

/** Verdicts of this visit: each text is checked once. */
const verdicts = new Map<string, boolean>();

/** Check every answer that has passed before. `tell` hears how many there are, before the first is checked. */
export async function passingAnswers(signal: AbortSignal, tell: (count: number) => void): Promise<Answers> {
  const answers: Answers = { passing: {}, unused: {} };
  const written = catalogue.flatMap(({ id }) => {
    const saved = load(id);
    return saved?.passed && saved.code !== null ? [{ id, code: saved.code }] : [];
  });
  const found = await Promise.all(written.map(async (each) => ({ ...each, exercise: await loadExercise(each.id) })));
  const ours = found.filter(({ exercise }) => FILES.has(exercise.file));
  if (ours.some(({ id, code }) => !verdicts.has(keyOf(id, code)))) tell(ours.length);
  for (const { id, code, exercise } of ours) {
    const key = keyOf(id, code);
    let isLate = false;
    if (!verdicts.has(key)) {
      const patient = { ...exercise, time_limit: PATIENCE * exercise.time_limit };
      const report = await runner.check(patient, code, signal, (phase) => (isLate ||= phase === "timeout"));
      if (signal.aborted) break;
      // A machine that is busy now may be quick enough the next time.
      if (!isLate) verdicts.set(key, report.status === "pass");
    }
    if (isLate) answers.unused[id] = "its checks did not end in time";
    else if (verdicts.get(key)) answers.passing[id] = code;
    else answers.unused[id] = "your code has changed since it passed, and does not pass";
  }
  return answers;
}

function keyOf(id: string, code: string): string {
  return `${id}\n${code}`;
}
