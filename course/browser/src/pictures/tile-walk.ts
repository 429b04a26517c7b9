/** What the programs of the attention kernels load, tile by tile: the loops of `solutions/triton_attention.py`. */

export const QUERIES = 16; // rows of a tile of queries, and lanes of a group of heads
export const GROUP = 3; // query heads that share a KV head: no power of two
export const KV_HEADS = 2;
export const LONGEST = 64; // tokens of context that the picture has room for
export const MOST_NEW = 32;
export const NUM_BLOCKS = 10;
/** Blocks in the order in which the sequence got them; with larger blocks it needs fewer. */
const HANDED_OUT = [5, 2, 7, 0, 6, 3, 8, 1];

export interface Setting {
  blockSize: number;
  tile: number;
  contextLen: number;
  newTokens: number;
}

/** One tile of keys in one program. `rows` are the program's, `first` the position of its first row. */
export interface Step {
  program: Program;
  start: number;
  end: number; // where the tile of keys ends
  loaded: number; // keys that are valid, from `start` on
  masked: boolean; // whether scores are compared with positions here
  entries: number[]; // of the block table
  blocks: number[];
}

export interface Program {
  id: string;
  what: string;
  firstRow: number; // in the picture
  rows: number; // that are somebody's
  limit: number; // no row needs a key at this position or beyond
}

export interface Walk {
  decode: boolean;
  table: number[];
  programs: Program[];
  steps: Step[];
}

export function walk({ blockSize, tile, contextLen, newTokens }: Setting): Walk {
  const table = HANDED_OUT.slice(0, Math.ceil(contextLen / blockSize));
  const decode = newTokens === 1;
  const programs = decode ? decodePrograms(contextLen) : prefillPrograms(contextLen, newTokens);
  const steps = programs.flatMap((program) => {
    // Every row of the tile sees all the keys before this one.
    const common = decode ? program.limit : Math.floor((contextLen - newTokens + program.firstRow + 1) / tile) * tile;
    return range(0, program.limit, tile).map((start) => {
      const loaded = Math.min(tile, program.limit - start);
      const entries = range(Math.floor(start / blockSize), Math.floor((start + loaded - 1) / blockSize) + 1);
      return { program, start, end: start + tile, loaded, masked: start >= common, entries, blocks: entries.map((entry) => table[entry]!) };
    });
  });
  return { decode, table, programs, steps };
}

function decodePrograms(contextLen: number): Program[] {
  return range(0, KV_HEADS).map((head) => ({
    id: `(${head}, 0)`,
    what: `KV head ${head}, sequence 0`,
    firstRow: head * QUERIES,
    rows: GROUP,
    limit: contextLen,
  }));
}

function prefillPrograms(contextLen: number, newTokens: number): Program[] {
  const first = contextLen - newTokens;
  const last = Math.ceil(newTokens / QUERIES) - 1; // the last tile is the first program's
  return range(0, newTokens, QUERIES).map((row) => ({
    id: `(0, 0, ${last - row / QUERIES})`,
    what: `query head 0, tile ${row / QUERIES} of the new tokens, sequence 0`,
    firstRow: row,
    rows: Math.min(QUERIES, newTokens - row),
    limit: Math.min(first + row + QUERIES, contextLen),
  }));
}

/** What becomes of one score of a tile. */
export type Kind = "seen" | "future" | "beyond" | "nobody";

export function kindOf(step: Step, row: number, key: number, { contextLen, newTokens }: Setting): Kind {
  if (row >= step.program.firstRow + step.program.rows) return "nobody";
  if (key >= step.program.limit) return "beyond";
  return newTokens > 1 && key > contextLen - newTokens + row ? "future" : "seen";
}

/** Keys loaded, scores multiplied and scores that count, in the first `count` steps. */
export function tally({ steps }: Walk, count: number, setting: Setting): { keys: number; scores: number; seen: number } {
  const sum = { keys: 0, scores: 0, seen: 0 };
  for (const step of steps.slice(0, count)) {
    sum.keys += step.loaded;
    sum.scores += QUERIES * setting.tile;
    for (const row of range(step.program.firstRow, step.program.firstRow + QUERIES)) {
      sum.seen += range(step.start, step.end).filter((key) => kindOf(step, row, key, setting) === "seen").length;
    }
  }
  return sum;
}

export function range(start: number, end: number, step = 1): number[] {
  return Array.from({ length: Math.max(0, Math.ceil((end - start) / step)) }, (_, index) => start + index * step);
}
