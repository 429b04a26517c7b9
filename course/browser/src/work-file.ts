/**
 * A learner's work as one file, which `python practice/judge.py import` reads and `export` writes.
 *
 * It holds, for each exercise, the text of its short file and whether it has passed.
 */

import { catalogue, type Entry } from "./catalogue";
import { type Exercise, loadExercise } from "./exercise";
import { keepCopy, load, type Outcome, save } from "./store";

declare const COURSE: string;

const FORMAT = "paged-inference-course/work";
const VERSION = 1;
const LARGEST = 8 * 1024 * 1024;

/** The file is none that can be imported; the message says why, for the reader. */
export class WorkFileError extends Error {}

/** One exercise of a file, and what importing it would do here. */
export interface Incoming {
  entry: Entry;
  exercise: Exercise;
  source: string | null;
  passed: boolean;
  /** Another text of the learner's own is here, and would become a version. */
  replaces: boolean;
  /** The file brings nothing that is not here. */
  isHere: boolean;
}

export interface Plan {
  incoming: Incoming[];
  /** Ids that this version of the course does not know. */
  unknown: string[];
}

/** Return the work that this browser keeps, as the file's text; null when there is none. */
export function exported(): string | null {
  const exercises: Record<string, { source: string | null; passed: boolean }> = {};
  for (const { id } of catalogue) {
    const saved = load(id);
    if (saved && (saved.code !== null || saved.passed)) {
      exercises[id] = { source: saved.code, passed: saved.passed !== null };
    }
  }
  if (Object.keys(exercises).length === 0) return null;
  return `${JSON.stringify({ format: FORMAT, version: VERSION, course: COURSE, exercises }, null, 2)}\n`;
}

/** Hand the work to the reader as a download; false when there is none. */
export function download(): boolean {
  const text = exported();
  if (text === null) return false;
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = "paged-inference-work.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
  return true;
}

/** Read a file and say what importing it would do. `WorkFileError` when it is no export of this course. */
export async function plan(file: File): Promise<Plan> {
  if (file.size > LARGEST) throw new WorkFileError("This file is too large to be an export of this course.");
  const exercises = read(await file.text());
  const known = catalogue.filter(({ id }) => Object.hasOwn(exercises, id));
  const incoming = known.map(async (entry): Promise<Incoming> => {
    const { source, passed } = exercises[entry.id] as FileEntry;
    const exercise = await loadExercise(entry.id);
    const saved = load(entry.id);
    const here = saved?.code ?? exercise.stub;
    const isOther = source !== null && source !== here;
    return {
      entry,
      exercise,
      source,
      passed: passed === true,
      replaces: isOther && saved?.code != null,
      isHere: !isOther && (passed !== true || saved?.passed != null),
    };
  });
  const ids = new Set(catalogue.map(({ id }) => id));
  return { incoming: await Promise.all(incoming), unknown: Object.keys(exercises).filter((id) => !ids.has(id)) };
}

/** Keep what a file brings; a text that gives way stays as a version. The worst outcome of all. */
export function apply(incoming: Incoming[]): Outcome {
  const outcomes = incoming.flatMap((each) => {
    const saved = load(each.entry.id);
    const { course, stub, stub_hash } = each.exercise;
    const at = new Date().toISOString();
    const kept: Outcome[] = [];
    if (each.replaces && saved?.code != null) {
      kept.push(keepCopy(each.entry.id, { code: saved.code, at, why: "import" }));
    }
    const code = each.source === null ? (saved?.code ?? null) : each.source === stub ? null : each.source;
    const passed = saved?.passed ?? (each.passed ? { at, course, stub: stub_hash } : null);
    // No tab's own: a page that has the exercise open asks before it takes this text.
    const record = { course, stub: stub_hash, savedAt: at, revision: (saved?.revision ?? 0) + 1, tab: "import" };
    kept.push(save(each.entry.id, { ...saved, ...record, code, passed }));
    return kept;
  });
  return outcomes.find((outcome) => outcome !== "kept") ?? "kept";
}

interface FileEntry {
  source: string | null;
  passed?: unknown;
}

function read(text: string): Record<string, FileEntry> {
  let data: unknown;
  try {
    data = JSON.parse(text);
  } catch {
    throw new WorkFileError("This file is no export of this course: it is not JSON.");
  }
  const { format, version, exercises } = (data ?? {}) as Record<string, unknown>;
  if (format !== FORMAT || typeof version !== "number") {
    throw new WorkFileError(`This file is no export of this course: it does not say ${FORMAT}.`);
  }
  if (version > VERSION) {
    throw new WorkFileError(
      `This file was made by a newer version of the course (format ${version}, and this page reads ${VERSION}).`,
    );
  }
  if (!isObject(exercises) || !Object.values(exercises).every(isEntry)) {
    throw new WorkFileError("This file is damaged: an exercise in it has no source that is a text.");
  }
  const entries = Object.entries(exercises as Record<string, FileEntry>);
  return Object.fromEntries(entries.map(([id, entry]) => [id, { ...entry, source: plain(entry.source) }]));
}

function isObject(data: unknown): data is object {
  return typeof data === "object" && data !== null && !Array.isArray(data);
}

function isEntry(entry: unknown): boolean {
  if (!isObject(entry)) return false;
  const { source } = entry as { source?: unknown };
  return source === undefined || source === null || typeof source === "string";
}

function plain(source: string | null | undefined): string | null {
  return source?.replace(/\r\n?/g, "\n") ?? null;
}
