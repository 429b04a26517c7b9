/** Shows hints one at a time: each is a `<details>` of the page, and the next appears when the one before is opened. */

export function unfoldInTurn(exercise: Element): void {
  const hints = [...exercise.querySelectorAll<HTMLDetailsElement>("details.exercise-hint")];
  hints.forEach((hint, index) => {
    hint.hidden = index > 0 && !hints[index - 1]?.open;
    hint.addEventListener("toggle", () => {
      const next = hints[index + 1];
      if (hint.open && next) next.hidden = false;
    });
  });
}
