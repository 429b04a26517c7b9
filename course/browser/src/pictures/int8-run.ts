/** A reader's run of `int8-append`: the integers and scales that each call left, as a table. */

import { h } from "../dom";
import type { Call } from "../exercise";
import type { Trace } from "./trace";

/** One block of keys or values: `slots[slot][head]` is a vector, null where nothing was written. */
interface Part {
  title: string;
  slots: (number[][] | null)[];
  scales: number[] | null;
}

interface CacheState {
  kind: "Int8Cache";
  keys: Part["slots"][];
  values: Part["slots"][];
  key_scales: Part["scales"][];
  value_scales: Part["scales"][];
}

export function isInt8Run(trace: Trace): boolean {
  return trace.calls.some((call) => partsAfter(call).length > 0);
}

export function runWords(trace: Trace, step: number): string[] {
  const call = trace.calls[step - 1];
  if (!call) return ["Before the first call."];
  if (trace.failure && step === trace.calls.length) {
    return [`Here it goes wrong: ${trace.failure.message}`, ...(trace.failure.expected === null ? [] : [`Expected: ${trace.failure.expected}`])];
  }
  return [call.call, call.raised !== null ? `raised ${call.raised}` : call.returned === null || call.returned === "None" ? "" : `gave ${call.returned}`];
}

/** A table for each block that holds something after `step` calls. */
export function drawRun(trace: Trace, step: number): HTMLElement[] {
  const call = trace.calls[step - 1];
  const parts = call ? partsAfter(call) : [];
  if (parts.length === 0) return [h("p", { class: "picture-note" }, step === 0 ? "Nothing is written yet." : "This call left no block to draw.")];
  return parts.map(drawPart);
}

function partsAfter(call: Call): Part[] {
  const states = Object.values((call.state ?? {}) as Record<string, { kind: string }>);
  const cache = states.find((state): state is CacheState => state.kind === "Int8Cache");
  if (!cache) return appended(call);
  const side = (name: string, blocks: Part["slots"][], scales: Part["scales"][]) =>
    blocks.map((slots, block) => ({ title: `${name} of block ${block}`, slots, scales: scales[block] ?? null }));
  return [...side("keys", cache.keys, cache.key_scales), ...side("values", cache.values, cache.value_scales)].filter(({ slots }) =>
    Array.isArray(slots) && slots.some((slot) => slot !== null),
  );
}

/** What `append` gave, where it is short enough to have been kept: a pair of a block and its scales. */
function appended(call: Call): Part[] {
  if (!call.call.startsWith("append(") || call.returned === null) return [];
  try {
    const [slots, scales] = JSON.parse(call.returned.replaceAll("(", "[").replaceAll(")", "]").replaceAll("None", "null")) as [Part["slots"], number[]];
    return Array.isArray(slots) && slots.length > 0 ? [{ title: "the block", slots, scales }] : [];
  } catch {
    return [];
  }
}

function drawPart({ title, slots, scales }: Part): HTMLElement {
  const heads = Math.max(0, ...slots.map((slot) => (Array.isArray(slot) ? slot.length : 0)));
  const cell = (slot: number[][] | null, head: number) => {
    const vector: unknown = slot?.[head];
    return h("td", {}, Array.isArray(vector) ? vector.join(" ") : "–");
  };
  const rows = Array.from({ length: heads }, (_, head) => {
    const scale: unknown = scales?.[head];
    return h("tr", {}, h("th", { scope: "row" }, `head ${head}`), h("td", {}, typeof scale === "number" ? `${Number(scale.toPrecision(4))}` : "–"), ...slots.map((slot) => cell(slot, head)));
  });
  const names = ["", "scale", ...slots.map((_, slot) => `slot ${slot}`)];
  return h(
    "div",
    { class: "int8-table", tabindex: "0", role: "region", "aria-label": title },
    h("table", {}, h("caption", {}, title), h("thead", {}, h("tr", {}, ...names.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, ...rows)),
  );
}
