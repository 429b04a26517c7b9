/**
 * Completion after a dot and in imports, on request: members of the text's own classes, of what the text says a name
 * is (an annotation, a literal, a call of a class), and of the standard library's modules.
 *
 * Names without a dot come from CodeMirror. The table of the standard library is fetched when it is first asked for.
 */

import type { Completion, CompletionContext, CompletionResult, CompletionSource } from "@codemirror/autocomplete";
import { globalCompletion, localCompletionSource } from "@codemirror/lang-python";
import { asset } from "./assets";

interface Table {
  /** The public names of each module, and of each type. */
  modules: Record<string, string[]>;
  types: Record<string, string[]>;
}

const EMPTY: Table = { modules: {}, types: {} };
let table: Promise<Table> | null = null;

function loadTable(): Promise<Table> {
  table ??= fetch(asset("completions.json")).then((response) => response.json() as Promise<Table>);
  return table.catch(() => {
    table = null;
    return EMPTY;
  });
}

/** Where the text asks for a member or an import, only these are offered; elsewhere, only CodeMirror's names. */
export const sources: CompletionSource[] = [
  (context) => (asksForMember(lineBefore(context)) ? complete(context) : null),
  ...[localCompletionSource, globalCompletion].map(
    (source): CompletionSource => (context) => (asksForMember(lineBefore(context)) ? null : source(context)),
  ),
];

function asksForMember(line: string): boolean {
  return /[\w)\]]\.\w*$/.test(line) || /^\s*(?:from|import)\s/.test(line);
}

function lineBefore(context: CompletionContext): string {
  const line = context.state.doc.lineAt(context.pos);
  return line.text.slice(0, context.pos - line.from);
}

async function complete(context: CompletionContext): Promise<CompletionResult | null> {
  const before = lineBefore(context);
  const word = /\w*$/.exec(before)?.[0] ?? "";
  const names = await namesFor(before, context.state.sliceDoc(0, context.pos), context.state.sliceDoc());
  if (!names.length) return null;
  return { from: context.pos - word.length, options: names, validFor: /^\w*$/ };
}

async function namesFor(line: string, before: string, doc: string): Promise<Completion[]> {
  const from = /^\s*from\s+([\w.]+)\s+import\s+(?:\(?[\w\s,]*)$/.exec(line);
  if (from) return options((await loadTable()).modules[from[1] ?? ""], "variable");
  if (/^\s*(?:from|import)\s+[\w.]*$/.test(line)) return options(Object.keys((await loadTable()).modules), "namespace");
  const member = /((?:\w+\.)+)\w*$/.exec(line);
  if (!member) return [];
  const path = (member[1] ?? "").split(".").slice(0, -1);
  const known = await membersOf(path, before, doc);
  // Where nothing tells what it is: every attribute that the text uses.
  return known.length ? known : options(matches(doc, /\.([A-Za-z_]\w*)/g), "property");
}

async function membersOf(path: string[], before: string, doc: string): Promise<Completion[]> {
  const [name = "", attribute, ...more] = path;
  if (more.length) return [];
  const { modules, types } = await loadTable();
  const inside = enclosingClass(before);
  if (attribute === undefined) {
    if (name === "self" && inside) return ofClass(inside, doc);
    const module = importedModule(name, doc);
    if (module) return options(modules[module], "variable");
    return ofType(/^["']/.test(name) ? "str" : (typeOfName(name, before) ?? name));
  }
  const owner = name === "self" ? inside : typeOfName(name, before);
  return owner ? ofType(typeOfAttribute(owner, attribute, doc)) : [];

  function ofType(type: string | undefined): Completion[] {
    if (!type) return [];
    const own = ofClass(type, doc);
    return own.length ? own : options(types[type], "method");
  }
}

function ofClass(name: string, doc: string): Completion[] {
  const body = classBody(name, doc);
  return [
    ...options(matches(body, /^[ \t]+(?:async +)?def +(\w+)/gm), "method"),
    ...options(matches(body, /\bself\.(\w+)\s*(?::|=(?!=))/g), "property"),
  ];
}

function classBody(name: string, doc: string): string {
  return new RegExp(`^class ${name}\\b[^\\n]*\\n((?:[ \\t][^\\n]*\\n?|\\n)*)`, "m").exec(doc)?.[1] ?? "";
}

function enclosingClass(before: string): string | undefined {
  return [...before.matchAll(/^(?:class +(\w+)|(?:async +)?def )/gm)].at(-1)?.[1];
}

function importedModule(name: string, doc: string): string | undefined {
  const alias = new RegExp(`^\\s*import\\s+(?:.*,\\s*)?([\\w.]+)\\s+as\\s+${name}\\b`, "m").exec(doc);
  if (alias) return alias[1];
  return new RegExp(`^\\s*import\\s+(?:.*,\\s*)?${name}\\b`, "m").test(doc) ? name : undefined;
}

/** What the text nearest above says that a name is. */
function typeOfName(name: string, before: string): string | undefined {
  const found = [...before.matchAll(new RegExp(`(?<![\\w.])${name}\\s*(:|=(?!=))\\s*([^\\n]+)`, "g"))].at(-1);
  return found && typeOf(found[1] ?? "", found[2] ?? "");
}

function typeOfAttribute(owner: string, attribute: string, doc: string): string | undefined {
  const body = classBody(owner, doc);
  const found = new RegExp(`\\bself\\.${attribute}\\s*(:|=(?!=))\\s*([^\\n]+)`).exec(body);
  const annotated = new RegExp(`^[ \\t]+${attribute}\\s*(:)\\s*([^\\n]+)`, "m").exec(body);
  const match = found ?? annotated;
  if (!match) return undefined;
  const text = match[2] ?? "";
  // `self.pool = pool`: what the parameter is.
  return match[1] === "=" && /^\w+$/.test(text) ? typeOfName(text, body) : typeOf(match[1] ?? "", text);
}

/** The type's name, of an annotation (`:`) or of the text of a value (`=`). */
function typeOf(sign: string, text: string): string | undefined {
  if (sign === ":") return /^(?:"|')?(?:[\w]+\.)*(\w+)/.exec(text)?.[1];
  if (text.startsWith("[")) return "list";
  if (text.startsWith("{")) return /^\{\s*(\}|[^,{]*:)/.test(text) ? "dict" : "set";
  if (/^[rbf]?["']/.test(text)) return "str";
  return /^(?:\w+\.)*(\w+)\(/.exec(text)?.[1];
}

function matches(text: string, pattern: RegExp): string[] {
  return [...text.matchAll(pattern)].map((match) => match[1] ?? "");
}

function options(names: string[] | undefined, type: string): Completion[] {
  const seen = new Set((names ?? []).filter((name) => name && !name.startsWith("__")));
  return [...seen].map((label) => ({ label, type }));
}
