/** The arithmetic of the INT8 picture: a block that fills, its scales, and how far each token is off. */

interface Data {
  block_size: number;
  /** Which token the loudness slider turns up, in head 0. */
  outlier: number;
  /** `[token][head]` is a vector. */
  tokens: number[][][];
}

declare const INT8_DATA: Data;

export const DATA: Data = INT8_DATA;
export const HEADS = [0, 1] as const;
const INT8_MAX = 127;

/** Which tokens and heads of a block share a scale. */
export type Grain = "head" | "block" | "token";
/** How the tokens come to the block. */
export type Arrival = "one by one" | "rising" | "in one write";

export interface Slot {
  /** The largest magnitude among its integers. */
  largest: number;
  /** The largest error of its numbers, in steps of the head's scale. */
  error: number;
  /** The same, as a share of the token's own largest number. */
  share: number;
}

export interface HeadState {
  /** Null where nothing is written, or where each token has a scale of its own. */
  scale: number | null;
  growths: number;
  slots: Slot[];
}

/** Half to even, as Python and the kernels round. */
export function roundHalfToEven(number: number): number {
  const below = Math.floor(number);
  const rest = number - below;
  if (rest !== 0.5) return rest < 0.5 ? below : below + 1;
  return below % 2 === 0 ? below : below + 1;
}

export function quantise(vector: readonly number[], scale: number): number[] {
  return vector.map((number) => Math.max(-INT8_MAX, Math.min(INT8_MAX, roundHalfToEven(number / (scale || 1)))));
}

export function largestOf(vector: readonly number[]): number {
  return Math.max(...vector.map(Math.abs));
}

/** The block's tokens in the order in which they come, one of them `loudness` times as loud in head 0. */
export function arriving(loudness: number, arrival: Arrival): number[][][] {
  const tokens = DATA.tokens.map((heads, token) =>
    heads.map((vector, head) => (token === DATA.outlier && head === 0 ? vector.map((number) => number * loudness) : vector)),
  );
  if (arrival !== "rising") return tokens;
  const rising = HEADS.map((head) => tokens.map((heads) => heads[head]!).sort((a, b) => largestOf(a) - largestOf(b)));
  return tokens.map((_, token) => rising.map((vectors) => vectors[token]!));
}

/** What each head's part of the block holds after 0, 1, … tokens. */
export function fill(tokens: readonly number[][][], grain: Grain, arrival: Arrival): HeadState[][] {
  const states = [HEADS.map(() => ({ scale: null, growths: 0, slots: [] }) as HeadState)];
  let block: number[][][] = [];
  let scales: number[] = HEADS.map(() => 0);
  let growths: number[] = HEADS.map(() => 0);
  tokens.forEach((token, index) => {
    const together = arrival === "in one write";
    const joining = together ? tokens.slice(0, index + 1) : [token];
    if (together) [block, scales, growths] = [[], HEADS.map(() => 0), HEADS.map(() => 0)];
    const grown = HEADS.map((head) => Math.max(scales[head]!, ...joining.map((heads) => needed(heads, head, grain))));
    if (grain !== "token") {
      block = block.map((heads) => heads.map((steps, head) => requantised(steps, scales[head]!, grown[head]!)));
      growths = growths.map((count, head) => count + (block.length > 0 && grown[head]! > scales[head]! ? 1 : 0));
      scales = grown;
    }
    const scaleOf = (heads: readonly number[][], head: number) => (grain === "token" ? needed(heads, head, grain) : scales[head]!);
    block = [...block, ...joining.map((heads) => heads.map((vector, head) => quantise(vector, scaleOf(heads, head))))];
    states.push(
      HEADS.map((head) => ({
        scale: grain === "token" ? null : scales[head]!,
        growths: growths[head]!,
        slots: block.map((heads, slot) => slotOf(heads[head]!, tokens[slot]![head]!, scaleOf(tokens[slot]!, head))),
      })),
    );
  });
  return states;
}

/** The scale that a token asks for in a head. */
function needed(heads: readonly number[][], head: number, grain: Grain): number {
  return Math.max(...(grain === "block" ? heads : [heads[head]!]).map(largestOf)) / INT8_MAX;
}

function requantised(steps: number[], was: number, is: number): number[] {
  return is > was ? quantise(steps.map((step) => step * was), is) : steps;
}

function slotOf(steps: readonly number[], vector: readonly number[], scale: number): Slot {
  const error = Math.max(...steps.map((step, at) => Math.abs(step * scale - vector[at]!)));
  return { largest: largestOf(steps), error: error / scale, share: error / largestOf(vector) };
}

/** What no error of a head may pass, in steps. */
export function bound({ growths }: HeadState): number {
  return (growths + 1) / 2;
}
