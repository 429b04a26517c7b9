/** The code editor: CodeMirror with Python, in a shadow root so that the site's styles and its own stay apart. */

import { autocompletion, closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab, isolateHistory } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, forceParsing, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { sources } from "./completion";
import { highlight, theme } from "./editor-theme";
import { hangingWrap } from "./hanging-wrap";

export interface EditorOptions {
  /** Where the editor goes. */
  host: HTMLElement;
  code: string;
  /** What a screen reader calls the editor. */
  label: string;
  /** What a screen reader adds: how to leave the editor. */
  help: string;
  onChange(code: string): void;
  onCheck(): void;
}

/** Pixels of the window that the site's header and the bar with Check cover: the cursor keeps out of them. */
const COVERED = { top: 64, bottom: 72 };
/** Milliseconds that may go by, before an editor is drawn, for reading its code. */
const PARSING = 500;

export class Editor {
  readonly #view: EditorView;

  constructor(options: EditorOptions) {
    const root = options.host.shadowRoot ?? options.host.attachShadow({ mode: "open" });
    this.#view = new EditorView({
      parent: root,
      root,
      state: EditorState.create({
        doc: options.code,
        extensions: [
          lineNumbers(),
          history(),
          drawSelection(),
          highlightActiveLine(),
          highlightActiveLineGutter(),
          indentOnInput(),
          indentUnit.of("    "),
          bracketMatching(),
          hangingWrap,
          closeBrackets(),
          autocompletion({ activateOnTyping: false, icons: false, override: sources }),
          python(),
          syntaxHighlighting(highlight),
          theme,
          keymap.of([
            { key: "Mod-Enter", preventDefault: true, run: () => (options.onCheck(), true) },
            ...closeBracketsKeymap,
            ...defaultKeymap,
            ...historyKeymap,
            indentWithTab,
          ]),
          EditorView.scrollMargins.of(() => COVERED),
          EditorView.contentAttributes.of({ "aria-label": options.label, "aria-description": options.help }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) options.onChange(update.state.doc.toString());
          }),
        ],
      }),
    });
    drawAllOf(this.#view);
    forceParsing(this.#view, options.code.length, PARSING); // how far a wrapped line hangs depends on what it is
    // The site's one-letter shortcuts (search and the like) are not for someone who types code.
    options.host.addEventListener("keydown", (event) => event.stopPropagation());
  }

  get code(): string {
    return this.#view.state.doc.toString();
  }

  /** Put other code in, as one step that undo takes back. */
  set code(code: string) {
    const { state } = this.#view;
    this.#view.dispatch({
      changes: { from: 0, to: state.doc.length, insert: code },
      selection: { anchor: 0 },
      annotations: isolateHistory.of("full"),
    });
  }

  focus(): void {
    this.#view.focus();
  }

  destroy(): void {
    this.#view.destroy();
  }
}

/**
 * Draw every line, those outside of the window too.
 *
 * CodeMirror draws what is near the window and guesses the height of the rest, for documents that are too long to draw.
 * Ours have a page or two, and a wrong guess moves everything below as the editor comes into view: a click that is under
 * way then misses. CodeMirror has no option for this; the flag is what it sets itself while a page is printed.
 */
function drawAllOf(view: EditorView): void {
  (view as unknown as { viewState: { printing: boolean } }).viewState.printing = true;
}
