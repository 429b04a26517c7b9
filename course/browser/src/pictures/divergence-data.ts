/** What was measured of the planted bugs (`docs/results/divergence.json`), and how it is read. */

import type { Report } from "../exercise";
import { listed } from "./pieces";

export interface Bug {
  id: string;
  name: string;
  what: string;
  /** One relative error a stage, in the order of computation. */
  errors: number[];
  /** One relative error a head, by layer. */
  heads: number[][];
  log_prob_gap: number;
  same_choice: number;
  report: string | null;
}

interface Divergence {
  bound: number;
  passes: number[];
  stages: string[];
  bugs: Bug[];
}

declare const DIVERGENCE_DATA: Divergence;

const measured: Divergence = DIVERGENCE_DATA;

export const DIVERGENCE = { ...measured, num_tokens: measured.passes.reduce((sum, each) => sum + each, 0) };

export interface Place {
  stage: number;
  heads: number[];
}

/** The first stage beyond the bound, as `first_divergence` of `solutions/diagnosis.py` finds it. */
export function firstBeyond(bug: Bug, bound: number): Place | null {
  for (let stage = 0; stage < bug.errors.length; stage++) {
    const layer = stage % 2 === 1 ? bug.heads[(stage - 1) / 2] : undefined;
    const heads = (layer ?? []).flatMap((error, head) => (error > bound ? [head] : []));
    if (heads.length > 0 || (!layer && bug.errors[stage]! > bound)) return { stage, heads };
  }
  return null;
}

export function placeInWords(place: Place | null): string {
  if (!place) return "nothing";
  const { stage, heads } = place;
  if (stage === 0) return "the embedding";
  if (stage === DIVERGENCE.stages.length - 1) return "the logits";
  const layer = `layer ${Math.floor((stage - 1) / 2)}`;
  if (heads.length === 0) return `${layer}, after its heads`;
  return `${layer}, ${heads.length === 1 ? "head" : "heads"} ${listed(heads)}`;
}

export interface Reading {
  place: string;
  cause: string | null;
}

/** What a reader's functions said of each bug in their last run: the check asks for one after the other. */
export function readings(report: Report): Map<string, Reading> {
  const calls = report.tests.find((check) => check.name === "names_the_planted_bugs")?.calls ?? [];
  const found: Reading[] = [];
  for (const { call, returned, raised } of calls) {
    const said = raised !== null ? `raised ${raised}` : (returned ?? "did not come back");
    if (call.startsWith("first_divergence(")) found.push({ place: said, cause: null });
    else if (call.startsWith("likely_cause(")) found.at(-1)!.cause = said;
  }
  return new Map(found.map((reading, index) => [DIVERGENCE.bugs[index]!.id, reading]));
}
