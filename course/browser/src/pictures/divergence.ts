/** Per-layer divergence: a planted bug, where it starts, how it grows, and which heads have it. */

import { h } from "../dom";
import type { Report } from "../exercise";
import { DIVERGENCE, type Bug, type Place, firstBeyond, placeInWords, readings, type Reading } from "./divergence-data";
import { Slider, svg } from "./pieces";
import type { Draw } from "./picture";

const HEIGHT = 190; // of the chart's plane, in CSS pixels
const LEFT = 38;
const BELOW = 34; // for the names of the stages
const [LOWEST, HIGHEST] = [-8, 1]; // decades of relative error
const EXERCISE = "parity-diagnosis";

export const draw: Draw = (host) => {
  const { bugs } = DIVERGENCE;
  const choice = h("select", { id: "divergence-bug" }, ...bugs.map((bug) => h("option", { value: bug.id }, bug.name)));
  const bound = new Slider({ label: "Bound", min: -7, max: 0, value: Math.log10(DIVERGENCE.bound), onInput: update });
  const words = h("p", { class: "divergence-words", "aria-live": "polite" });
  const harness = h("p", { class: "divergence-harness" });
  const own = h("p", { class: "divergence-own", hidden: true });
  const chart = new Chart();
  const table = new Table();
  let mine: Map<string, Reading> | null = null;

  host.classList.add("divergence");
  host.setAttribute("role", "group");
  host.setAttribute("aria-label", "Picture: where a planted bug starts, and how it grows");
  host.append(
    h("div", { class: "picture-controls" }, h("div", { class: "divergence-choice" }, h("label", { for: "divergence-bug" }, "Planted bug"), choice), bound.root),
    words,
    h("div", { class: "divergence-body" }, chart.root, table.root),
    harness,
    own,
  );
  choice.addEventListener("change", update);

  function update(): void {
    const bug = bugs.find((each) => each.id === choice.value) ?? bugs[0]!;
    const limit = 10 ** bound.value;
    const place = firstBeyond(bug, limit);
    const said = `1e${bound.value}`;
    bound.say(said, `${said}; ${bug.name}: ${placeInWords(place)}`);
    words.replaceChildren(
      h("strong", {}, bug.name),
      `: ${bug.what}. First beyond the bound of ${said}: ${placeInWords(place)}. Log-probabilities are off by up to `,
      `${short(bug.log_prob_gap)}; after ${bug.same_choice} of ${DIVERGENCE.num_tokens} tokens, the most likely next one is the right one.`,
    );
    harness.replaceChildren(h("strong", {}, "The harness says"), ` (bound 1e-4): ${bug.report ?? "no divergence."}`);
    own.hidden = mine === null;
    own.replaceChildren(h("strong", {}, "Your last run says"), ": ", ...inCode(mine?.get(bug.id)));
    chart.show(bug, limit, place);
    table.show(bug, limit);
  }

  const listen = (event: Event) => {
    const report = (event as CustomEvent<Report>).detail;
    if (report.exercise !== EXERCISE) return;
    mine = readings(report);
    update();
  };
  document.addEventListener("course:report", listen);
  const sizes = new ResizeObserver(update);
  sizes.observe(host);
  update();
  return () => {
    sizes.disconnect();
    document.removeEventListener("course:report", listen);
  };
};

function inCode(reading: Reading | undefined): (Node | string)[] {
  if (!reading) return ["nothing yet, since a check before this one fails."];
  const parts: (Node | string)[] = [h("code", {}, reading.place)];
  if (reading.cause !== null) parts.push(", ", h("code", {}, reading.cause));
  return [...parts, "."];
}

function short(error: number): string {
  if (error === 0) return "0";
  return error >= 0.1 ? error.toPrecision(2) : error.toExponential(1);
}

function decade(error: number): number {
  return error > 0 ? Math.max(LOWEST, Math.min(HIGHEST, Math.log10(error))) : LOWEST;
}

/** The errors of every stage on a logarithmic axis: a line for all heads together, a small ring for each head. */
class Chart {
  readonly root = h("div", { class: "divergence-chart", "aria-hidden": "true" });

  show(bug: Bug, bound: number, place: Place | null): void {
    const width = this.root.clientWidth || 320;
    const stages = DIVERGENCE.stages.length;
    const x = (stage: number) => LEFT + ((stage + 0.5) * (width - LEFT)) / stages;
    const y = (error: number) => (HEIGHT * (HIGHEST - decade(error))) / (HIGHEST - LOWEST);
    const line = (errors: readonly number[]) => errors.map((error, stage) => `${stage ? "L" : "M"}${x(stage)} ${y(error)}`).join("");
    const drawing = svg("svg", { width, height: HEIGHT + BELOW, viewBox: `0 -6 ${width} ${HEIGHT + BELOW}` });

    for (let power = LOWEST; power <= HIGHEST; power += 2) {
      const at = y(10 ** power);
      drawing.append(svg("line", { class: "chart-grid", x1: LEFT, x2: width, y1: at, y2: at }));
      drawing.append(svg("text", { class: "chart-label", x: LEFT - 6, y: at + 3.5, "text-anchor": "end" }, `1e${power}`));
    }
    for (let layer = 0; layer < bug.heads.length; layer++) {
      const middle = (x(2 * layer + 1) + x(2 * layer + 2)) / 2;
      drawing.append(svg("text", { class: "chart-label", x: middle, y: HEIGHT + 26, "text-anchor": "middle" }, `layer ${layer}`));
    }
    const names = ["embed", ...bug.heads.flatMap(() => ["heads", "out"]), "logits"];
    names.forEach((name, stage) =>
      drawing.append(svg("text", { class: "chart-label", x: x(stage), y: HEIGHT + 13, "text-anchor": "middle" }, name)),
    );
    if (place) {
      const at = x(place.stage);
      drawing.append(svg("line", { class: "chart-first", x1: at, x2: at, y1: 0, y2: HEIGHT }));
      drawing.append(svg("text", { class: "chart-name", x: at + 4, y: HEIGHT - 5 }, "first"));
    }
    drawing.append(svg("path", { class: "chart-noise", d: line(DIVERGENCE.bugs[0]!.errors) }));
    drawing.append(svg("line", { class: "chart-bound", x1: LEFT, x2: width, y1: y(bound), y2: y(bound) }));
    drawing.append(svg("text", { class: "chart-name", x: width - 2, y: y(bound) - 4, "text-anchor": "end" }, "bound"));
    drawing.append(svg("path", { class: "chart-errors", d: line(bug.errors) }));
    bug.errors.forEach((error, stage) => drawing.append(svg("circle", { class: "chart-dot", cx: x(stage), cy: y(error), r: 3 })));
    bug.heads.forEach((layer, index) =>
      layer.forEach((error, head) => {
        const across = x(2 * index + 1) + (head - (layer.length - 1) / 2) * 5;
        const kind = error > bound ? "chart-head is-beyond" : "chart-head";
        drawing.append(svg("circle", { class: kind, cx: across, cy: y(error), r: 2.2 }));
      }),
    );
    this.root.replaceChildren(drawing);
  }
}

/** The same errors as numbers; a cell is the warmer the larger its error. */
class Table {
  readonly #caption = h("caption", {});
  readonly #body = h("tbody", {});
  readonly root: HTMLElement;

  constructor() {
    const heads = DIVERGENCE.bugs[0]!.heads[0]!.map((_, head) => h("th", { scope: "col" }, `head ${head}`));
    this.root = h(
      "table",
      { class: "divergence-table" },
      this.#caption,
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "stage"), h("th", { scope: "col" }, "error"), ...heads)),
      this.#body,
    );
  }

  show(bug: Bug, bound: number): void {
    this.#caption.textContent = `Relative errors: ${bug.name}`;
    const rows = DIVERGENCE.stages.map((stage, index) => {
      const heads = index % 2 === 1 ? bug.heads[(index - 1) / 2] : undefined;
      const cells = heads ? heads.map((error) => cell(error, bound)) : bug.heads[0]!.map(() => h("td", {}));
      return h("tr", {}, h("th", { scope: "row" }, stage), cell(bug.errors[index]!, bound), ...cells);
    });
    this.#body.replaceChildren(...rows);
  }
}

function cell(error: number, bound: number): HTMLElement {
  const heat = Math.round((40 * (decade(error) - LOWEST)) / (HIGHEST - LOWEST));
  const beyond = error > bound;
  return h(
    "td",
    { class: beyond ? "is-beyond" : null, style: `--heat: ${heat}%` },
    beyond && h("span", { class: "beyond-mark", title: "beyond the bound" }, "✗ "),
    short(error),
  );
}
