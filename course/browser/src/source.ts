/** Reads Python without running it: the functions and methods of a text, and its colours. */

import { pythonLanguage } from "@codemirror/lang-python";
import { classHighlighter, highlightCode } from "@lezer/highlight";
import { h } from "./dom";

const parser = pythonLanguage.parser;
type Node = ReturnType<typeof parser.parse>["topNode"];

/**
 * Return the text of every function and method by symbol (`function`, `Class.method`), decorators included, docstrings
 * left out, moved to the left margin. A text with errors gives what can be told of it; of two definitions of one name,
 * as a property and its setter have, both.
 */
export function symbolSources(code: string): Map<string, string> {
  const found = new Map<string, string>();
  const add = (symbol: string, text: string) => {
    const before = found.get(symbol);
    found.set(symbol, before === undefined ? text : `${before}\n\n${text}`);
  };
  for (const node of statements(parser.parse(code).topNode)) {
    const definition = bare(node);
    const name = nameOf(definition, code);
    if (definition.name === "FunctionDefinition") add(name, textOf(node, definition, code));
    if (definition.name !== "ClassDefinition") continue;
    const body = definition.getChild("Body");
    for (const member of body ? statements(body) : []) {
      const method = bare(member);
      if (method.name === "FunctionDefinition") add(`${name}.${nameOf(method, code)}`, textOf(member, method, code));
    }
  }
  return found;
}

/** Return the import statements at the top of a text. */
export function imports(code: string): string[] {
  const found = statements(parser.parse(code).topNode).filter((node) => node.name === "ImportStatement");
  return found.map((node) => code.slice(node.from, node.to));
}

/** Code in the site's colours, one element a line, so that a long line wraps under its own indentation. */
export function drawCode(code: string): HTMLElement {
  const lines: HTMLElement[] = [];
  let line = newLine();
  highlightCode(
    code,
    parser.parse(code),
    classHighlighter,
    (text, classes) => line.append(classes ? h("span", { class: classes }, text) : text),
    () => (line = newLine()),
  );
  return h("pre", { class: "listing" }, h("code", {}, ...lines));

  function newLine(): HTMLElement {
    const start = code.split("\n")[lines.length] ?? "";
    const columns = start.length - start.trimStart().length + 2;
    const next = h("span", { class: "listing-line", style: `--columns: ${columns}ch` });
    if (lines.length) lines.at(-1)?.append("\n");
    lines.push(next);
    return next;
  }
}

function statements(parent: Node): Node[] {
  const found: Node[] = [];
  for (let child = parent.firstChild; child; child = child.nextSibling) found.push(child);
  return found;
}

/** The definition inside its decorators. */
function bare(node: Node): Node {
  if (node.name !== "DecoratedStatement") return node;
  return node.getChild("FunctionDefinition") ?? node.getChild("ClassDefinition") ?? node;
}

function nameOf(definition: Node, code: string): string {
  const name = definition.getChild("VariableName");
  return name ? code.slice(name.from, name.to) : "";
}

function textOf(whole: Node, definition: Node, code: string): string {
  let text = code.slice(whole.from, whole.to);
  const body = definition.getChild("Body");
  const first = body && statements(body).find((node) => node.name !== ":");
  if (first?.name === "ExpressionStatement" && first.firstChild?.name === "String" && first.nextSibling) {
    const lineStart = code.lastIndexOf("\n", first.from) + 1;
    const lineEnd = code.indexOf("\n", first.to);
    if (lineStart > whole.from) text = code.slice(whole.from, lineStart) + code.slice(lineEnd + 1, whole.to);
  }
  const margin = whole.from - (code.lastIndexOf("\n", whole.from - 1) + 1);
  return text
    .split("\n")
    .map((line, index) => (index && line.slice(0, margin).trim() === "" ? line.slice(margin) : line))
    .join("\n")
    .trimEnd();
}
