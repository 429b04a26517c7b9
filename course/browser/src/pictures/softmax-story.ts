/** What the softmax picture plays: the chapter's sequence, from the build, or the calls of a learner's run. */

import type { Call } from "../exercise";
import type { Trace } from "./trace";

/** What an online softmax remembers. A learner's may be no numbers at all. */
export interface Sums {
  maximum: number;
  total: number;
  accumulator: number[];
}

/** One key of a block. `score` is null where the query does not see it. */
export interface Key {
  label: string;
  score: number | null;
  value: string;
  /** Why it is not seen, in a word. */
  unseen?: "later" | "unwritten" | "masked";
}

/** Keys that are taken in together, at step `step`. */
export interface Block {
  title: string;
  step: number;
  keys: Key[];
}

export interface Step {
  sums: Sums;
  /** The blocks that have a part in these sums, as numbers of the story's. */
  blocks: number[];
  /** What a learner's run called at this step, and what came back. */
  call: Call | null;
}

export interface Story {
  title: string;
  blocks: Block[];
  /** The first is the start. */
  steps: Step[];
  failure: Trace["failure"];
}

interface Data {
  keys: number[];
  queries: number[];
  values: number[];
  tables: Record<string, number[]>;
  runs: Record<string, Sums[][]>;
}

declare const SOFTMAX_DATA: Data;

export const DATA: Data = SOFTMAX_DATA;
export const BLOCK_SIZES = Object.keys(DATA.tables).map(Number);
export const NOTHING: Sums = { maximum: -Infinity, total: 0, accumulator: [0] };

/** The chapter's sequence, seen by the query at `position`, in blocks of `size`. */
export function chapterStory(size: number, position: number): Story {
  const query = DATA.queries[position]!;
  const table = DATA.tables[size]!;
  const blocks = table.map((block, entry) => ({
    title: `${block}`,
    step: entry + 1,
    keys: Array.from({ length: size }, (_, offset) => chapterKey(entry * size + offset, position, query)),
  }));
  const sums = [NOTHING, ...DATA.runs[size]![position]!];
  return {
    title: "The sequence of this chapter",
    blocks,
    steps: sums.map((each, step) => ({ sums: each, blocks: blocks.slice(0, step).map((_, index) => index), call: null })),
    failure: null,
  };
}

function chapterKey(at: number, position: number, query: number): Key {
  const key = DATA.keys[at];
  if (key === undefined) return { label: `${at}`, score: null, value: "", unseen: "unwritten" };
  const value = `${DATA.values[at]}`;
  return at > position ? { label: `${at}`, score: null, value, unseen: "later" } : { label: `${at}`, score: query * key, value };
}

/** A learner's run: one step for each call. Each call is about one object, and shows what that one has taken in. */
export function runStory(trace: Trace): Story {
  const blocks: Block[] = [];
  const owners: string[] = [];
  const steps: Step[] = [{ sums: NOTHING, blocks: [], call: null }];
  for (const call of trace.calls) {
    const owner = /^(\w+)(?: = |\.)/.exec(call.call)?.[1] ?? "";
    const added = addedKeys(call.call);
    if (added) {
      blocks.push({ title: `${owners.filter((each) => each === owner).length + 1}`, step: steps.length, keys: added });
      owners.push(owner);
    }
    const mine = owners.flatMap((each, index) => (each === owner ? [index] : []));
    steps.push({ sums: sumsOf(call.state?.[owner]) ?? steps.at(-1)!.sums, blocks: mine, call });
  }
  return { title: trace.title, blocks, steps, failure: trace.failure };
}

/** Whether a trace has anything for this picture. */
export function isSoftmaxRun(trace: Trace): boolean {
  return trace.calls.some((call) => Object.values(call.state ?? {}).some((state) => sumsOf(state) !== null));
}

/** The keys that a call adds, as far as its text tells; null for any other call. */
function addedKeys(call: string): Key[] | null {
  const [, scores, values] = /^\w+\.add\(\[(.*?)\], \[(.*)\]\)$/.exec(call) ?? [];
  if (scores === undefined || values === undefined) return null;
  if (scores.includes("…")) return [{ label: "", score: null, value: "…", unseen: "masked" }];
  const vectors = values.match(/\[[^\]]*\]|None|…/g) ?? [];
  return scores
    .split(", ")
    .filter((text) => text !== "")
    .map((text, index) => {
      const value = (vectors[index] ?? "…").replace(/[[\]]/g, "").replace(/\.0\b/g, "");
      return text === "-inf" ? { label: "", score: null, value, unseen: "masked" } : { label: "", score: Number(text), value };
    });
}

function sumsOf(state: unknown): Sums | null {
  const seen = state as { kind?: string; maximum?: unknown; total?: unknown; accumulator?: unknown[] } | undefined;
  if (seen?.kind !== "OnlineSoftmax") return null;
  return { maximum: numberOf(seen.maximum), total: numberOf(seen.total), accumulator: (seen.accumulator ?? []).map(numberOf) };
}

/** Python's `-inf`, `inf` and `nan` come in words. */
function numberOf(value: unknown): number {
  if (typeof value === "number") return value;
  return value === "-inf" ? -Infinity : value === "inf" ? Infinity : NaN;
}
