/** Draws a report: what failed and how it came about first, then every check and whether it ran. */

import { h } from "./dom";
import type { Call, Check, Exercise, Report } from "./exercise";

/** One sentence for the status line, which screen readers speak. */
export function summary(report: Report, exercise: Exercise): string {
  const total = exercise.promises.length;
  if (report.status === "pass") return total === 1 ? "Passed: the check holds." : `Passed: all ${total} checks hold.`;
  if (report.unfinished) return "Not written yet: there is a part still to do.";
  if (report.tests.length === 0) return "Your code could not be loaded.";
  return `Not yet: check ${report.tests.length} of ${total} fails.`;
}

export function drawVerdict(report: Report, exercise: Exercise): HTMLElement {
  const last = report.tests.at(-1);
  const failure = last && last.status !== "pass" ? last : null;
  return h(
    "div",
    { class: "verdict" },
    !failure && report.message !== null && drawBroken(report),
    failure && drawFailure(failure),
    report.status === "pass" && drawOutput(report.tests.map((check) => check.output).join("")),
    drawChecks(report, exercise),
  );
}

function drawBroken(report: Report): HTMLElement {
  return h(
    "div",
    { class: "failure" },
    h("p", { class: "failure-message" }, report.message),
    drawFolded("What Python says", report.interpreter),
    drawOutput(report.output),
  );
}

function drawFailure(check: Check): HTMLElement {
  return h(
    "div",
    { class: "failure" },
    h("p", { class: "failure-promise" }, ...inlineCode(check.promise)),
    check.message !== null && h("p", { class: "failure-message" }, check.message),
    check.calls.length > 0 && drawCalls(check.calls, check.expected),
    check.why !== null && drawNote("Why it matters", check.why),
    drawOutput(check.output),
    drawFolded("What Python says", check.interpreter),
    drawFolded("The check’s code", check.test_code || null),
  );
}

/** The calls that led to the failure, as a table of call and outcome; the last one is where it went wrong. */
function drawCalls(calls: Call[], expected: string | null): HTMLElement {
  const rows = calls.map((call, index) => drawCall(call, index === calls.length - 1));
  const wanted = expected !== null && row("calls-expected", "expected", expected);
  return h(
    "div",
    { class: "calls", role: "region", "aria-label": "The calls that led here", tabindex: "0" },
    h(
      "table",
      {},
      h("caption", {}, calls.length === 1 ? "What was called" : "What was called, in order"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "call"), h("th", { scope: "col" }, "came back"))),
      h("tbody", {}, ...rows, wanted),
    ),
  );
}

function drawCall(call: Call, isLast: boolean): HTMLElement {
  return row(isLast ? "calls-last" : "", call.call, outcome(call));
}

function outcome(call: Call): string {
  if (call.raised !== null) return `raised ${call.raised}`;
  if (call.returned === null) return "nothing: it did not come back";
  // `pool = BlockPool(8)` says already what came back.
  return call.call.startsWith(`${call.returned} = `) ? "" : call.returned;
}

function row(kind: string, left: string, right: string): HTMLElement {
  const [call, result] = [left, right].map((text) => h("td", {}, text !== "" && h("code", {}, text)));
  return h("tr", kind ? { class: kind } : {}, call, result);
}

function drawNote(title: string, text: string): HTMLElement {
  return h("p", { class: "failure-why" }, h("strong", {}, `${title}. `), ...inlineCode(text));
}

function drawOutput(output: string): HTMLElement | null {
  if (output === "") return null;
  return h(
    "details",
    { class: "fold", open: true },
    h("summary", {}, "What your code printed"),
    h("pre", { tabindex: "0" }, h("code", {}, output)),
  );
}

function drawFolded(title: string, text: string | null): HTMLElement | null {
  if (text === null) return null;
  return h("details", { class: "fold" }, h("summary", {}, title), h("pre", { tabindex: "0" }, h("code", {}, text)));
}

const MARKS = { pass: "✓", fail: "✗", error: "✗", waiting: "·" };
const WORDS = { pass: "holds", fail: "fails", error: "fails", waiting: "not run" };

function drawChecks(report: Report, exercise: Exercise): HTMLElement {
  const ran = new Map(report.tests.map((check) => [check.name, check.status]));
  const items = exercise.promises.map(([name, promise]) => {
    const state = ran.get(name) ?? "waiting";
    return h(
      "li",
      { class: `check check-${state}` },
      h("span", { class: "check-mark", "aria-hidden": "true" }, MARKS[state]),
      h("span", {}, ...inlineCode(promise), h("span", { class: "for-screen-readers" }, ` (${WORDS[state]})`)),
    );
  });
  return h("ol", { class: "checks", "aria-label": "The checks" }, ...items);
}

/** Text in which `backticks` mark code. */
function inlineCode(text: string): (string | HTMLElement)[] {
  return text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));
}
