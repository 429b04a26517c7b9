/**
 * What a picture is: a custom element that holds a table or some text for a reader without JavaScript, and draws itself
 * from a module that is loaded only where the picture is.
 *
 * What the page held stays, folded away under the picture: it says the same in words.
 */

import { h } from "../dom";

/** Draws into `host` and returns what undoes the listeners and timers that outlive the drawing. */
export type Draw = (host: HTMLElement) => () => void;

export function definePicture(tag: string, load: () => Promise<{ draw: Draw }>): void {
  if (customElements.get(tag)) return;

  class Picture extends HTMLElement {
    #fallback: ChildNode[] | null = null;
    #undo: (() => void) | null = null;

    connectedCallback(): void {
      load().then(
        ({ draw }) => {
          if (!this.isConnected || this.#undo) return;
          this.#fallback ??= [...this.childNodes];
          const host = h("div", { class: "picture" });
          const inWords = h("details", { class: "picture-words" }, h("summary", {}, "The same in words"), ...this.#fallback);
          this.#undo = draw(host);
          this.replaceChildren(host, inWords);
          this.classList.add("is-drawn");
        },
        (error: unknown) => console.warn(`${tag} stays as it is:`, error),
      );
    }

    disconnectedCallback(): void {
      this.#undo?.();
      this.#undo = null;
    }
  }

  customElements.define(tag, Picture);
}
