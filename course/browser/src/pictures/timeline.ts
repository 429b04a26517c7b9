/**
 * The timeline: a row for each sequence, a column for each step, and the pool's blocks beneath.
 *
 * Whoever has steps to show makes a `Timeline` of them: the story of chapter 4, a learner's run, an engine in the page.
 * `new TimelineView(onStep)` draws it: put its `root` somewhere, then `show(timeline)`, or `append(step)` as steps come.
 */

/** What a step did with a sequence. A preempted one lost its blocks in this step; a finished one gave them back. */
export type Doing = "waiting" | "prefill" | "decode" | "idle" | "preempted" | "finished";

/** A sequence in one step, as it is after the step. */
export interface Part {
  doing: Doing;
  /** How many of its tokens the step computed. */
  num_new: number;
  /** How many of its tokens have their keys and values in the cache. */
  num_computed: number;
  /** How many tokens it has, prompt included. */
  num_tokens: number;
  num_blocks: number;
}

export interface TimelineStep {
  /** By the sequence's name. A sequence that has not come yet, or finished in an earlier step, is not in it. */
  parts: Record<string, Part>;
}

export interface Timeline {
  title: string;
  /** The pool's size; null where it is not known. */
  num_blocks: number | null;
  /** The most tokens that a step computes; null where it is not known. */
  max_step_tokens: number | null;
  /** The rows, from above: names in order of arrival. More may come with later steps. */
  sequences: string[];
  steps: TimelineStep[];
}
