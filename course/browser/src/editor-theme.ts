/** The editor's colours and sizes: the site's own variables, so that it follows the palette without being told. */

import { HighlightStyle } from "@codemirror/language";
import { EditorView } from "@codemirror/view";
import { tags as t } from "@lezer/highlight";

export const theme = EditorView.theme({
  "&": {
    color: "var(--md-code-fg-color)",
    backgroundColor: "var(--exercise-editor)",
    fontSize: "var(--exercise-code-size)",
  },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": {
    fontFamily: "var(--md-code-font-family)",
    fontVariantLigatures: "none",
    lineHeight: "1.55",
  },
  ".cm-content": { padding: "0.7em 0", caretColor: "var(--md-accent-fg-color)" },
  ".cm-line": { padding: "0 1em 0 0.5em" },
  ".cm-gutters": {
    backgroundColor: "transparent",
    color: "var(--md-default-fg-color--light)",
    border: "none",
    display: "var(--exercise-gutters)",
    paddingLeft: "0.35em",
  },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  "&.cm-focused .cm-activeLine": { backgroundColor: "var(--exercise-active-line)" },
  "&.cm-focused .cm-activeLineGutter": { backgroundColor: "transparent", color: "var(--md-default-fg-color)" },
  ".cm-cursor": { borderLeftColor: "var(--md-accent-fg-color)", borderLeftWidth: "2px" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    background: "var(--exercise-selection)",
  },
  "&.cm-focused .cm-matchingBracket": {
    backgroundColor: "var(--exercise-selection)",
    outline: "1px solid var(--md-default-fg-color--lighter)",
  },
  ".cm-tooltip": {
    backgroundColor: "var(--md-default-bg-color)",
    color: "var(--md-default-fg-color)",
    border: "1px solid var(--exercise-line)",
    borderRadius: "0.25rem",
    overflow: "hidden",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--md-code-font-family)", maxHeight: "12em" },
  ".cm-tooltip-autocomplete .cm-completionMatchedText": { textDecoration: "none", fontWeight: "600" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": {
    backgroundColor: "var(--md-accent-fg-color)",
    color: "var(--md-accent-bg-color)",
  },
});

export const highlight = HighlightStyle.define([
  { tag: [t.keyword, t.operatorKeyword, t.modifier], color: "var(--md-code-hl-keyword-color)" },
  { tag: [t.string, t.special(t.string), t.character], color: "var(--md-code-hl-string-color)" },
  { tag: [t.comment, t.docString], color: "var(--md-code-hl-comment-color)" },
  { tag: [t.number, t.bool, t.null, t.self], color: "var(--md-code-hl-number-color)" },
  {
    tag: [t.definition(t.variableName), t.function(t.variableName), t.function(t.propertyName)],
    color: "var(--md-code-hl-function-color)",
  },
  { tag: [t.className, t.typeName, t.definition(t.className)], color: "var(--md-code-hl-function-color)" },
  { tag: [t.operator, t.punctuation, t.bracket], color: "var(--md-code-hl-operator-color)" },
  { tag: t.meta, color: "var(--md-code-hl-special-color)" },
]);
