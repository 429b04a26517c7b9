/**
 * What this browser keeps of a learner's work: one record an exercise, under the exercise's id, which never changes.
 *
 * The course's version and the stub's hash are fields of the record and no part of the key, so an upgrade of the
 * course finds the work again, and can say that the stub it began from has changed. A text that gives way to another
 * (a reset, an import, another tab) stays as a copy. What the browser refuses to keep stays in this page's memory.
 */

export interface Saved {
  /** The learner's code, or null where it is the stub. */
  code: string | null;
  /** The version of the course that the code was last saved with, and the hash of the stub that it was begun from. */
  course: string;
  stub: string;
  savedAt: string;
  /** When an answer first passed, and with which course and stub. */
  passed: { at: string; course: string; stub: string } | null;
  /** When the learner gave up and asked for the reference. */
  gaveUp?: string | null;
  /** Goes up with every change of the code, and says which tab made it: two tabs tell each other's texts by it. */
  revision?: number;
  tab?: string;
}

/** A text that is no longer in the editor. */
export interface Copy {
  code: string;
  at: string;
  why: CopyReason;
  /** The tab that still writes to this copy, because another tab's text has the record. */
  tab?: string;
}

export type CopyReason = "reset" | "import" | "tab" | "version" | "unreadable";

/** Whether the browser keeps what it was given. */
export type Outcome = "kept" | "full" | "refused";

const PREFIX = "paged-inference-course/exercise/";
const COPIES = "paged-inference-course/copies/";
const COPIES_KEPT = 20;

/** This tab's name, as long as its page lives. */
export const TAB = Math.random().toString(36).slice(2);

/** Tells of records that have changed: `change` events whose `detail` is the exercise's id, or null for all. */
export const changes = new EventTarget();

const memory = new Map<string, string>();

export function load(id: string): Saved | null {
  const text = read(PREFIX + id);
  if (text === null) return null;
  const saved = parse(text);
  if (isSaved(saved)) return saved;
  keepCopy(id, { code: text, at: new Date().toISOString(), why: "unreadable" });
  remove(PREFIX + id);
  return null;
}

export function save(id: string, saved: Saved): Outcome {
  const outcome = write(PREFIX + id, JSON.stringify(saved));
  tell(id);
  return outcome;
}

/** Return what stands in for the editor's text in earlier or other versions, the newest first. */
export function copies(id: string): Copy[] {
  const list = parse(read(COPIES + id) ?? "[]");
  return Array.isArray(list) ? list.filter(isCopy) : [];
}

/** Keep a copy, in place of one with the same text or of the same writing tab. */
export function keepCopy(id: string, copy: Copy): Outcome {
  const others = copies(id).filter((each) => each.code !== copy.code && (!copy.tab || each.tab !== copy.tab));
  return write(COPIES + id, JSON.stringify([copy, ...others].slice(0, COPIES_KEPT)));
}

/** Close the copy that this tab writes to; drop it when its text has a place again. */
export function closeCopy(id: string, drop: boolean): void {
  const open = copies(id);
  if (!open.some((each) => each.tab === TAB)) return;
  const rest = drop ? open.filter((each) => each.tab !== TAB) : open.map(({ tab: _, ...copy }) => copy);
  write(COPIES + id, JSON.stringify(rest));
}

/** Whether anything is kept in this page's memory only, and goes with it. */
export function isInDanger(): boolean {
  return memory.size > 0;
}

function read(key: string): string | null {
  const kept = memory.get(key);
  if (kept !== undefined) return kept;
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function write(key: string, text: string): Outcome {
  try {
    localStorage.setItem(key, text);
    memory.delete(key);
    return "kept";
  } catch (error) {
    memory.set(key, text);
    return error instanceof DOMException && error.name === "QuotaExceededError" ? "full" : "refused";
  }
}

function remove(key: string): void {
  memory.delete(key);
  try {
    localStorage.removeItem(key);
  } catch {
    // What cannot be removed cannot be read either.
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isSaved(data: unknown): data is Saved {
  if (typeof data !== "object" || data === null) return false;
  const { code, passed } = data as Record<string, unknown>;
  return (code === null || typeof code === "string") && (passed === null || typeof passed === "object");
}

function isCopy(data: unknown): data is Copy {
  return typeof data === "object" && data !== null && typeof (data as Copy).code === "string";
}

function tell(id: string | null): void {
  changes.dispatchEvent(new CustomEvent("change", { detail: id }));
}

addEventListener("storage", ({ key }) => {
  if (key === null) tell(null);
  else if (key.startsWith(PREFIX)) tell(key.slice(PREFIX.length));
});

addEventListener("beforeunload", (event) => {
  if (isInDanger()) event.preventDefault();
});
