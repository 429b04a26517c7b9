/** Chapter 1's requests and the counting of their places: the arithmetic of `solutions/utilization.py`. */

interface Workload {
  max_len: number;
  requests: [prompt: number, answer: number][];
}

declare const WORKLOAD_DATA: Workload;

export const WORKLOAD: Workload = WORKLOAD_DATA;

export interface Taken {
  tokens: number;
  /** How many units (blocks, or a reserved room) the request takes. */
  units: number;
  places: number;
  empty: number;
}

/** What a request takes at its end, in units of `unit` places. */
export function perRequest([prompt, answer]: [number, number], unit: number): Taken {
  const tokens = prompt + answer;
  const units = Math.ceil(tokens / unit);
  return { tokens, units, places: units * unit, empty: units * unit - tokens };
}

/** All requests together: add up first, divide last. */
export function total(taken: readonly Taken[]): { tokens: number; places: number; share: number } {
  const tokens = taken.reduce((sum, each) => sum + each.tokens, 0);
  const places = taken.reduce((sum, each) => sum + each.places, 0);
  return { tokens, places, share: tokens / places };
}
