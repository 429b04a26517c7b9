/** Runs of a scheduler as timelines: those that the build had the reference play, and a learner's own. */

import type { Call, Check, Report } from "../exercise";
import type { Doing, Part, Timeline, TimelineStep } from "./timeline";

/** See course/browser/timeline.py for how a run is written. */
interface Runs {
  block_size: number;
  requests: [name: string, numPrompt: number, maxNewTokens: number][];
  pools: number[];
  gaps: number[];
  budgets: number[];
  start: [pool: number, gap: number, budget: number];
  runs: string[][][];
}

declare const TIMELINE_DATA: Runs;

export const RUNS: Runs = TIMELINE_DATA;

const DOING: Record<string, Doing> = { w: "waiting", i: "idle", d: "decode", x: "preempted", f: "finished" };

/** Unfold the run at these places of the sliders. */
export function builtIn(pool: number, gap: number, budget: number): Timeline {
  const now = RUNS.requests.map(([name, numPrompt]) => ({ name, num_tokens: numPrompt, num_computed: 0 }));
  const run = RUNS.runs[pool]![gap]![budget]!;
  const steps = Array.from({ length: run.length / now.length }, (_, step) => {
    const signs = run.slice(step * now.length);
    const parts: Record<string, Part> = {};
    now.forEach((sequence, index) => {
      const sign = signs[index]!;
      if (sign === "-") return;
      const doing = DOING[sign] ?? "prefill";
      const numNew = doing === "decode" ? 1 : doing === "prefill" ? sign.charCodeAt(0) - 64 : 0;
      sequence.num_computed = doing === "preempted" || doing === "finished" ? 0 : sequence.num_computed + numNew;
      const { num_tokens, num_computed } = sequence;
      parts[sequence.name] = { doing, num_new: numNew, num_computed, num_tokens, num_blocks: Math.ceil(num_computed / RUNS.block_size) };
      if (numNew > 0 && num_computed === num_tokens) sequence.num_tokens += 1;
    });
    return { parts };
  });
  return {
    title: "Six requests",
    num_blocks: RUNS.pools[pool]!,
    max_step_tokens: RUNS.budgets[budget]!,
    sequences: now.map(({ name }) => name),
    steps,
  };
}

/** What a report says of a sequence after a call. */
interface SequenceState {
  kind: "Sequence";
  num_prompt: number;
  num_tokens: number;
  num_computed: number;
  num_blocks: number;
  max_new_tokens: number;
  ended: boolean;
}

type States = Record<string, SequenceState>;

export interface OwnRun extends Timeline {
  failure: string | null;
}

/** The checks of a report that planned steps, as timelines. */
export function runsOf(report: Report): OwnRun[] {
  return report.tests.flatMap((check, index) => {
    const run = runOf(check, index + 1);
    return run.steps.length > 0 ? [run] : [];
  });
}

function runOf(check: Check, number: number): OwnRun {
  const failed = check.status !== "pass";
  const steps: TimelineStep[] = [];
  const names: string[] = [];
  let before: States = {};
  for (const call of check.calls) {
    const after = sequencesIn(call);
    if (!after) continue;
    if (/\.(schedule|step)\(\)$/.test(call.call)) {
      const parts = Object.fromEntries(Object.entries(before).flatMap(([name, was]) => partOf(name, was, after[name])));
      if (Object.keys(parts).length > 0) steps.push({ parts });
    }
    names.push(...Object.keys(after).filter((name) => !names.includes(name)));
    before = after;
  }
  return {
    title: `check ${number}, ${failed ? "fails" : "holds"}: ${check.name.replaceAll("_", " ")}`,
    num_blocks: poolSize(check.calls),
    max_step_tokens: budgetOf(check.calls),
    sequences: names.filter((name) => steps.some(({ parts }) => name in parts)),
    steps,
    failure: failed ? [check.message, check.expected && `Expected: ${check.expected}`].filter(Boolean).join(". ") : null,
  };
}

function sequencesIn(call: Call): States | null {
  if (!call.state) return null;
  return Object.fromEntries(Object.entries(call.state as States).filter(([, state]) => state.kind === "Sequence"));
}

/** What a step did with a sequence: the difference that it made. Nothing where the sequence had gone before. */
function partOf(name: string, was: SequenceState, is: SequenceState | undefined): [string, Part][] {
  if (!is) return [];
  const complete = was.ended || was.num_tokens - was.num_prompt >= was.max_new_tokens;
  if (complete && was.num_blocks === 0) return [];
  const numNew = Math.max(0, is.num_computed - was.num_computed);
  let doing: Doing = is.num_computed === 0 ? "waiting" : "idle";
  if (numNew > 0) doing = was.num_computed > 0 && was.num_tokens - was.num_computed === 1 ? "decode" : "prefill";
  else if (is.num_computed < was.num_computed) doing = complete ? "finished" : "preempted";
  // A token that the step samples is not there to be computed yet.
  const { num_tokens } = was;
  return [[name, { doing, num_new: numNew, num_computed: is.num_computed, num_tokens, num_blocks: is.num_blocks }]];
}

function poolSize(calls: Call[]): number | null {
  const made = calls.map(({ call }) => /\b(?:BlockPool|TinyEngine)\((\d+)/.exec(call)).find(Boolean);
  return made ? Number(made[1]) : null;
}

function budgetOf(calls: Call[]): number | null {
  const made = calls.map(({ call }) => /Scheduler\(\w+, (\d+)|max_step_tokens=(\d+)|TinyEngine\(\d+, \d+, (\d+)/.exec(call)).find(Boolean);
  const value = made?.[1] ?? made?.[2] ?? made?.[3];
  return value === undefined ? null : Number(value);
}
