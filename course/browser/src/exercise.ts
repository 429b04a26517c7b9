/** What the build writes about an exercise, and the report of a check; both are made by `course/judge`. */

import { asset } from "./assets";
import { onceEach } from "./once";

export interface Exercise {
  id: string;
  title: string;
  /** The version of the course that the stub belongs to. */
  course: string;
  difficulty: "easy" | "medium" | "hard";
  /** The file that a clone of the course keeps this exercise in. */
  file: string;
  /** Seconds that one check of a whole answer may take. */
  time_limit: number;
  /** Whether a page can judge it: what needs PyTorch is judged in a clone. */
  runs_in_page: boolean;
  /** The archives of Python that its check needs beside the judge's. */
  archives: string[];
  stub: string;
  stub_hash: string;
  /** Every check's name and what it promises, in the order in which they run. */
  promises: [name: string, promise: string][];
}

/** exercism's results.json, version 3, and the course's own fields. */
export interface Report {
  version: 3;
  status: Status;
  message: string | null;
  exercise: string;
  /** The stub was not touched, or a part of it is still to be written. */
  unfinished: boolean;
  /** The checks that ran: those before the first failure, and that one. */
  tests: Check[];
  /** What the interpreter said, and what was printed, while the answer was loaded. */
  interpreter: string | null;
  output: string;
  /** The command to give next, in a clone of the course. */
  next: string | null;
}

export type Status = "pass" | "fail" | "error";

export interface Check {
  name: string;
  status: Status;
  message: string | null;
  output: string;
  test_code: string;
  promise: string;
  why: string | null;
  calls: Call[];
  expected: string | null;
  /** The interpreter's own words, which differ between versions of Python. */
  interpreter: string | null;
}

export interface Call {
  call: string;
  returned: string | null;
  raised: string | null;
  state: Record<string, unknown> | null;
}

export const loadExercise = onceEach(fetchExercise);

async function fetchExercise(id: string): Promise<Exercise> {
  return (await fetchJson(`exercises/${id}.json`)) as Exercise;
}

/** What the reference has and the stub has not: each symbol's name and its text. */
export interface Reference {
  parts: [symbol: string, code: string][];
}

/** Fetch the reference. It is fetched only when it is asked for. */
export async function loadReference(id: string): Promise<Reference> {
  return (await fetchJson(`exercises/${id}.reference.json`)) as Reference;
}

async function fetchJson(path: string): Promise<unknown> {
  const response = await fetch(asset(path));
  if (!response.ok) throw new Error(`${path} could not be loaded (${response.status})`);
  return response.json();
}
