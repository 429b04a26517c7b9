/** A trace: calls and what pools and tables looked like after each. It comes from the build or from a learner's run. */

import type { Call, Check, Report } from "../exercise";
import { blocksListed, counted } from "./pieces";

export interface PoolState {
  kind: "BlockPool";
  num_free: number;
  ref_counts: number[];
  /** The free queue in order; only the reference tells. */
  free_queue?: number[];
}

export interface TableState {
  kind: "BlockTable";
  block_size: number;
  blocks: number[];
  num_tokens: number;
}

export type State = Record<string, PoolState | TableState>;

export interface Trace {
  title: string;
  start: State;
  calls: Call[];
  /** Where it went wrong, when it did: the last call, in the judge's words. */
  failure: { message: string; expected: string | null } | null;
}

declare const STORY_DATA: { start: State; calls: Call[] };

export const STORY: Trace = { title: "The story of this chapter", ...STORY_DATA, failure: null };

/** The checks of a report that made calls, as traces. */
export function tracesOf(report: Report): Trace[] {
  const number = (check: Check) => report.tests.indexOf(check) + 1;
  return report.tests
    .filter((check) => check.calls.length > 0)
    .map((check) => ({
      title: `check ${number(check)}, ${check.status === "pass" ? "holds" : "fails"}: ${check.name.replaceAll("_", " ")}`,
      start: {},
      calls: check.calls,
      failure: check.status === "pass" ? null : { message: check.message ?? "", expected: check.expected },
    }));
}

/** The state after `step` calls. A call that never came back left none: then it is what was last seen. */
export function stateAt(trace: Trace, step: number): State {
  for (let index = step - 1; index >= 0; index--) {
    const state = trace.calls[index]?.state;
    if (state) return state as State;
  }
  return trace.start;
}

export function hasStates(trace: Trace): boolean {
  return trace.calls.some((call) => call.state !== null);
}

export function pools(state: State): [string, PoolState][] {
  return Object.entries(state).filter((entry): entry is [string, PoolState] => entry[1].kind === "BlockPool");
}

export function tables(state: State): [string, TableState][] {
  return Object.entries(state).filter((entry): entry is [string, TableState] => entry[1].kind === "BlockTable");
}

/** The names of the pools or tables that come up anywhere in a trace. */
export function names(trace: Trace, kind: "BlockPool" | "BlockTable"): string[] {
  const states = [trace.start, ...trace.calls.map((call) => (call.state ?? {}) as State)];
  return [...new Set(states.flatMap((state) => Object.keys(state).filter((name) => state[name]!.kind === kind)))];
}

/** The block size of the first table that comes up in a trace; 0 where there is none. */
export function blockSizeOf(trace: Trace): number {
  return trace.calls.flatMap((call) => tables((call.state ?? {}) as State))[0]?.[1].block_size ?? 0;
}

/** What came back, in a few words; empty where the call says it already (`pool = BlockPool(8)`) or it is of no interest. */
export function outcome(call: Call): string {
  if (call.raised !== null) return `raised ${call.raised}`;
  if (call.returned === null) return "did not come back";
  if (call.call.startsWith(`${call.returned} = `)) return "";
  if (call.returned === "None" && /\.(free|share)\(/.test(call.call)) return "";
  return call.returned;
}

export interface Change {
  /** What happened, a sentence each. */
  sentences: string[];
  /** A word or two on each block that changed, by pool and block. */
  blocks: Map<string, string>;
  /** Which entries of which table changed. */
  entries: Set<string>;
}

export const key = (name: string, index: number) => `${name} ${index}`;

/** Put into words what a step changed. */
export function changeAt(trace: Trace, step: number): Change {
  const change: Change = { sentences: [], blocks: new Map(), entries: new Set() };
  const call = trace.calls[step - 1];
  if (!call) {
    const [pool] = pools(trace.start);
    change.sentences.push(
      pool ? `Before the first call. The pool has ${counted(pool[1].ref_counts.length, "block")}, and all are free.` : "Before the first call.",
    );
    return change;
  }
  const [before, after] = [stateAt(trace, step - 1), stateAt(trace, step)];
  const result = outcome(call);
  change.sentences.push(result === "" ? `${call.call}.` : result === call.returned ? `${call.call} gives ${result}.` : `${call.call} ${result}.`);
  const copy = /\.append\(/.test(call.call) ? /^\[\((\d+), (\d+)\)\]$/.exec(call.returned ?? "") : null;

  const said = change.sentences.length;
  for (const [name, pool] of pools(after)) comparePools(name, before[name] as PoolState | undefined, pool, change);
  for (const [name, table] of tables(after)) compareTables(name, before[name] as TableState | undefined, table, change);
  if (copy) {
    change.sentences.push(`Before anything is written, the engine copies block ${copy[1]} to block ${copy[2]}.`);
    const [pool] = pools(after);
    if (pool) {
      change.blocks.set(key(pool[0], Number(copy[1])), "source");
      change.blocks.set(key(pool[0], Number(copy[2])), "copy");
    }
  }
  if (change.sentences.length === said && hasStates(trace) && call.state !== null) change.sentences.push(unchanged(call));
  change.sentences.push(...contradictions(trace, step));
  if (trace.failure && step === trace.calls.length) {
    change.sentences.push(`Here it goes wrong: ${trace.failure.message}`);
    if (trace.failure.expected !== null) change.sentences.push(`Expected: ${trace.failure.expected}`);
  }
  return change;
}

function unchanged(call: Call): string {
  if (/\.(append|allocate)\(/.test(call.call) && call.returned === "None") return "Refused: nothing changes.";
  if (/\.grow\(/.test(call.call) && call.returned === "False") return "Refused: nothing changes.";
  return "Nothing changes.";
}

function comparePools(name: string, before: PoolState | undefined, after: PoolState, change: Change): void {
  const counts = (block: number) => [before?.ref_counts[block] ?? 0, after.ref_counts[block]!] as const;
  const blocks = after.ref_counts.map((_, block) => block);
  const taken = inQueueOrder(blocks.filter((block) => counts(block)[0] === 0 && counts(block)[1] > 0), before?.free_queue);
  const freed = inQueueOrder(blocks.filter((block) => counts(block)[0] > 0 && counts(block)[1] === 0), after.free_queue);
  const others = blocks.filter((block) => counts(block)[0] > 0 && counts(block)[1] > 0 && counts(block)[0] !== counts(block)[1]);

  if (!before) {
    change.sentences.push(`A pool of ${counted(after.ref_counts.length, "block")}.`);
    return;
  }
  if (taken.length > 0) {
    change.sentences.push(`The pool hands out ${blocksListed(taken)}${before.free_queue ? " from the front of the queue" : ""}.`);
    for (const block of taken) change.blocks.set(key(name, block), "taken");
  }
  if (freed.length > 0) {
    const where = after.free_queue ? " and joins the end of the queue" : " and is free";
    const verb = freed.length === 1 ? `loses its last owner${where}` : `lose their last owner${where.replace("joins", "join").replace("is", "are")}`;
    change.sentences.push(`${capital(blocksListed(freed))} ${verb}.`);
    for (const block of freed) change.blocks.set(key(name, block), "freed");
  }
  for (const count of new Set(others.map((block) => counts(block)[1]))) {
    const same = others.filter((block) => counts(block)[1] === count);
    const each = same.length > 1 ? " each" : "";
    change.sentences.push(`${capital(blocksListed(same))} now ${same.length > 1 ? "have" : "has"} ${counted(count, "owner")}${each}.`);
    for (const block of same) change.blocks.set(key(name, block), `${counts(block)[0]} → ${count}`);
  }
}

function compareTables(name: string, before: TableState | undefined, after: TableState, change: Change): void {
  const old = before?.blocks ?? [];
  after.blocks.forEach((block, entry) => {
    if (old[entry] !== block) change.entries.add(key(name, entry));
  });
  if (!before && after.num_tokens === 0) {
    change.sentences.push(`${name} is a table without tokens.`);
    return;
  }
  if (before && before.num_tokens === after.num_tokens && old.join() === after.blocks.join()) return;
  if (after.blocks.length === 0) {
    change.sentences.push(`${name} holds nothing any more.`);
    return;
  }
  const replaced = after.blocks.map((block, entry) => [old[entry], block] as const).filter(([was, is]) => was !== undefined && was !== is);
  for (const [was, is] of replaced) change.sentences.push(`In ${name}’s table, block ${is} takes the place of block ${was}.`);
  change.sentences.push(`${name} now has ${counted(after.num_tokens, "token")} in ${blocksListed(after.blocks)}.`);
}

/** Blocks in the order in which they stand in a queue, where there is one to look at. */
function inQueueOrder(blocks: number[], queue: number[] | undefined): number[] {
  return queue ? queue.filter((block) => blocks.includes(block)) : blocks;
}

/**
 * What cannot be true together, in words. A block is free when it has no owner, so `num_free` is the number of counts
 * that are 0. A block's count is the number of tables that list it, as long as only tables deal with the pool.
 */
export function contradictions(trace: Trace, step: number): string[] {
  const state = stateAt(trace, step);
  const found = pools(state).flatMap(([, pool]) => {
    const free = pool.ref_counts.filter((count) => count === 0).length;
    return free === pool.num_free
      ? []
      : [`These contradict each other: the pool says that ${pool.num_free} are free, and ${counted(free, "block has", "blocks have")} no owner.`];
  });
  const wrong = miscounted(trace, step);
  return wrong.length === 0
    ? found
    : [...found, ...wrong.map(([block, count, lists]) => `Block ${block} has a count of ${count}, and ${counted(lists, "table lists", "tables list")} it.`)];
}

/** Blocks whose count is not the number of tables that list them: block, count, tables. */
export function miscounted(trace: Trace, step: number): [block: number, count: number, lists: number][] {
  const state = stateAt(trace, step);
  const [pool, second] = pools(state);
  const onlyTables = !trace.calls.slice(0, step).some((call) => /\bpool\d*\.(allocate|share|free)\(/.test(call.call));
  if (!pool || second || !onlyTables || tables(state).length === 0) return [];
  const lists = (block: number) => tables(state).filter(([, table]) => table.blocks.includes(block)).length;
  return pool[1].ref_counts.flatMap((count, block) => (count === lists(block) ? [] : [[block, count, lists(block)] as [number, number, number]]));
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

