/**
 * What this browser keeps of a learner's work: one record an exercise, under the exercise's id, which never changes.
 *
 * The course's version and the stub's hash are fields of the record and no part of the key, so an upgrade of the
 * course finds the work again, and can say that the stub it began from has changed.
 */

export interface Saved {
  /** The learner's code, or null where it is the stub. */
  code: string | null;
  /** The version of the course, and the hash of the stub, that the code was last saved with. */
  course: string;
  stub: string;
  savedAt: string;
  /** When an answer first passed, and with which course and stub. */
  passed: { at: string; course: string; stub: string } | null;
}

const PREFIX = "paged-inference-course/exercise/";

export function load(id: string): Saved | null {
  try {
    const text = localStorage.getItem(PREFIX + id);
    return text === null ? null : (JSON.parse(text) as Saved);
  } catch {
    return null;
  }
}

/** Keep a record; false when the browser refuses or is full. */
export function save(id: string, saved: Saved): boolean {
  try {
    localStorage.setItem(PREFIX + id, JSON.stringify(saved));
    return true;
  } catch {
    return false;
  }
}
