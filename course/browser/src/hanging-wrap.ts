/** Wraps long lines so that what is wrapped stays under the line's own indentation, a little further in. */

import { type EditorState, type Extension, RangeSetBuilder } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, ViewPlugin, type ViewUpdate } from "@codemirror/view";

const CONTINUATION = 2;

function indentation(text: string, tabSize: number): number {
  let columns = 0;
  for (const char of text) {
    if (char === " ") columns += 1;
    else if (char === "\t") columns += tabSize - (columns % tabSize);
    else break;
  }
  return columns;
}

function hang(state: EditorState, view: EditorView): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>();
  for (const { from, to } of view.visibleRanges) {
    for (let position = from; position <= to; ) {
      const line = state.doc.lineAt(position);
      const columns = indentation(line.text, state.tabSize) + CONTINUATION;
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
      if (update.docChanged || update.viewportChanged) this.decorations = hang(update.state, update.view);
    }
  },
  { decorations: (plugin) => plugin.decorations },
);

export const hangingWrap: Extension = [EditorView.lineWrapping, hanging];
