/** How many exercises are passed: in the navigation beside each chapter, and as `<course-progress page="…">`. */

import { catalogue, type Entry, pageAddress } from "./catalogue";
import { h } from "./dom";
import { changes, load } from "./store";

/** `<course-progress>`: x of y passed, of one page (`page="block-pool/"`) or of the course. It follows every change. */
export class CourseProgress extends HTMLElement {
  readonly #draw = () => {
    const page = this.getAttribute("page");
    const entries = catalogue.filter((entry) => page === null || entry.page === page);
    const passed = entries.filter(isPassed);
    const blocks = entries.map((entry) => h("i", { "data-passed": isPassed(entry) }));
    this.replaceChildren(
      h("span", { class: "progress-blocks", "aria-hidden": "true" }, ...blocks),
      h("span", {}, `${passed.length} of ${entries.length} passed`),
    );
  };

  connectedCallback(): void {
    changes.addEventListener("change", this.#draw);
    this.#draw();
  }

  disconnectedCallback(): void {
    changes.removeEventListener("change", this.#draw);
  }
}

/** Keep the counts in the site's navigation, which is drawn anew for each page. */
export function showInNavigation(): void {
  const draw = () => {
    for (const link of document.querySelectorAll<HTMLAnchorElement>(".md-nav--primary a.md-nav__link")) {
      const entries = catalogue.filter((entry) => pageAddress(entry.page) === link.href.replace(/#.*$/, ""));
      if (!entries.length) continue;
      drawCount(link, entries);
      // On a phone the page that is open is no link but a label, which unfolds its table of contents.
      const label = link.parentElement?.querySelector<HTMLElement>(":scope > label.md-nav__link .md-ellipsis");
      if (label) drawCount(label, entries);
    }
  };
  changes.addEventListener("change", draw);
  const theme = (window as { document$?: { subscribe(next: () => void): void } }).document$;
  if (theme) theme.subscribe(draw);
  else addEventListener("DOMContentLoaded", draw);
  draw();
}

function drawCount(link: HTMLElement, entries: Entry[]): void {
  const passed = entries.filter(isPassed).length;
  const count = link.querySelector(".nav-progress") ?? link.appendChild(h("span", { class: "nav-progress" }));
  count.classList.toggle("is-complete", passed === entries.length);
  count.replaceChildren(
    h("span", { "aria-hidden": "true" }, `${passed}/${entries.length}`),
    h("span", { class: "for-screen-readers" }, `, ${passed} of ${entries.length} exercises passed`),
  );
}

function isPassed(entry: Entry): boolean {
  return load(entry.id)?.passed != null;
}
