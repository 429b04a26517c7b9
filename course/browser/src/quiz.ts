/**
 * `<course-quiz>`: a question, an ordered list of options and a folded answer whose first number is the right option.
 * Here the options become buttons that say whether they are right, and then why. Nothing is remembered.
 */

import { h } from "./dom";

let quizzes = 0;

export class CourseQuiz extends HTMLElement {
  #options: HTMLButtonElement[] = [];
  #right = -1;

  connectedCallback(): void {
    if (this.#options.length > 0) return;
    const question = this.querySelector<HTMLElement>(":scope > p");
    const list = this.querySelector<HTMLOListElement>(":scope > ol");
    const answer = this.querySelector<HTMLDetailsElement>(":scope > details");
    const right = answer && takeNumber(answer);
    if (!question || !list || !answer || !right || right > list.children.length) return;

    this.#right = right - 1;
    question.id ||= `quiz-${++quizzes}`;
    const verdict = h("p", { class: "quiz-verdict" });
    const reply = h("div", { class: "quiz-reply", "aria-live": "polite" }, verdict);
    const why = h("div", { class: "quiz-why", hidden: true }, ...[...answer.children].filter(({ localName }) => localName !== "summary"));
    this.#options = [...list.children].map((item, index) => makeOption(item, index));
    const group = h("div", { class: "quiz-options", role: "radiogroup", "aria-labelledby": question.id }, ...this.#options);
    verdict.textContent = "Choose one.";
    list.replaceWith(group);
    answer.replaceWith(reply);
    reply.append(why);
    this.#focusable(0);

    const choose = (index: number) => {
      this.#mark(index);
      why.hidden = false;
      this.dataset["state"] = index === this.#right ? "right" : "wrong";
      verdict.textContent = index === this.#right ? "✓ Right." : `✗ Not ${index + 1}. It is ${this.#right + 1}.`;
    };
    this.#options.forEach((option, index) => {
      option.addEventListener("click", () => choose(index));
      option.addEventListener("keydown", (event) => this.#move(event, index));
    });
  }

  /** Arrows go from option to option and choose nothing: to choose is to answer. */
  #move(event: KeyboardEvent, from: number): void {
    const count = this.#options.length;
    const steps: Record<string, number> = { ArrowDown: from + 1, ArrowRight: from + 1, ArrowUp: from - 1, ArrowLeft: from - 1, Home: 0, End: count - 1 };
    const to = steps[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.#focusable((to + count) % count);
    this.#options[(to + count) % count]?.focus();
  }

  /** A group of radio buttons is one stop of the Tab key. */
  #focusable(index: number): void {
    this.#options.forEach((option, each) => (option.tabIndex = each === index ? 0 : -1));
  }

  #mark(chosen: number): void {
    this.#focusable(chosen);
    this.#options.forEach((option, index) => {
      option.setAttribute("aria-checked", String(index === chosen));
      const kind = index === this.#right ? "right" : index === chosen ? "wrong" : "";
      option.dataset["kind"] = kind;
      option.querySelector(".quiz-mark")!.textContent = kind === "" ? "" : kind === "right" ? "✓ right" : "✗ wrong";
    });
  }
}

function makeOption(item: Element, index: number): HTMLButtonElement {
  return h(
    "button",
    { type: "button", role: "radio", "aria-checked": "false", class: "quiz-option" },
    h("span", { class: "quiz-number", "aria-hidden": "true" }, `${index + 1}`),
    h("span", { class: "quiz-text" }, ...item.childNodes),
    h("span", { class: "quiz-mark" }),
  );
}

/** Take the number from the front of the answer's text (`2: because …`). */
function takeNumber(answer: Element): number | null {
  const first = answer.querySelector("p")?.firstChild;
  const found = /^\s*(\d+)(?::\s*)/.exec(first?.nodeValue ?? "");
  if (!first || !found) return null;
  first.nodeValue = first.nodeValue!.slice(found[0].length);
  return Number(found[1]);
}
