/** Wraps long lines so that what is wrapped stays under the line's own indentation: code a little further in, prose not. */

import { syntaxTree } from "@codemirror/language";
import { type EditorState, type Extension, RangeSetBuilder } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, ViewPlugin, type ViewUpdate } from "@codemirror/view";

const CODE_HANGS_BY = 2;

function indentation(text: string, tabSize: number): number {
  let columns = 0;
  for (const char of text) {
    if (char === " ") columns += 1;
    else if (char === "\t") columns += tabSize - (columns % tabSize);
    else break;
  }
  return columns;
}

/** Whether a line begins with, or within, a string: a docstring's lines are prose. */
function isProse(state: EditorState, from: number, text: string): boolean {
  const first = from + Math.max(text.search(/\S/), 0);
  return syntaxTree(state).resolveInner(first, 1).name === "String";
}

function hang(state: EditorState, view: EditorView): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>();
  for (const { from, to } of view.visibleRanges) {
    for (let position = from; position <= to; ) {
      const line = state.doc.lineAt(position);
      const further = isProse(state, line.from, line.text) ? 0 : CODE_HANGS_BY;
      const columns = indentation(line.text, state.tabSize) + further;
      const style = `text-indent: -${columns}ch; padding-left: calc(0.5em + ${columns}ch)`;
      builder.add(line.from, line.from, Decoration.line({ attributes: { style } }));
      position = line.to + 1;
    }
  }
  return builder.finish();
}

const hanging = ViewPlugin.fromClass(
  class {
    decorations: DecorationSet;
    constructor(view: EditorView) {
      this.decorations = hang(view.state, view);
    }
    update(update: ViewUpdate) {
      const parsed = syntaxTree(update.state) !== syntaxTree(update.startState);
      if (update.docChanged || update.viewportChanged || parsed) this.decorations = hang(update.state, update.view);
    }
  },
  { decorations: (plugin) => plugin.decorations },
);

export const hangingWrap: Extension = [EditorView.lineWrapping, hanging];
