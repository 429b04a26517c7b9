/** The pieces that pictures are made of: sliders, step controls, legends, block cells, words for lists of numbers. */

import { h } from "../dom";

export function calm(): boolean {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** `1, 2 and 3`. */
export function listed(items: readonly (number | string)[]): string {
  return items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`;
}

/** `block 3`, `blocks 3, 4 and 5`. */
export function blocksListed(blocks: readonly number[]): string {
  return `${blocks.length === 1 ? "block" : "blocks"} ${listed(blocks)}`;
}

/** `1 block`, `4096 places`, `819,200 places`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count < 10_000 ? count : count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** Runs of consecutive numbers, as the pages write them: `20–31, 0, 1`. */
export function runs(numbers: readonly number[]): string {
  const found: [first: number, last: number][] = [];
  for (const number of numbers) {
    const run = found.at(-1);
    if (run && run[1] + 1 === number) run[1] = number;
    else found.push([number, number]);
  }
  const write = ([first, last]: [number, number]) =>
    first === last ? [`${first}`] : last === first + 1 ? [`${first}`, `${last}`] : [`${first}–${last}`];
  return found.flatMap(write).join(", ");
}

// Sliders.

interface SliderOptions {
  label: string;
  min: number;
  max: number;
  value: number;
  onInput: (value: number) => void;
}

/** A labelled range; what stands beside the label, and what a screen reader says, is `say`'s business. */
export class Slider {
  readonly root: HTMLElement;
  readonly input: HTMLInputElement;
  readonly #shown = h("span", { class: "slider-value", "aria-hidden": "true" });

  constructor({ label, min, max, value, onInput }: SliderOptions) {
    this.input = h("input", { type: "range", min: `${min}`, max: `${max}`, step: "1", value: `${value}` });
    this.root = h("label", { class: "slider" }, h("span", { class: "slider-label" }, label), this.#shown, this.input);
    this.input.addEventListener("input", () => onInput(this.value));
  }

  get value(): number {
    return this.input.valueAsNumber;
  }

  set value(value: number) {
    this.input.value = `${value}`;
  }

  say(shown: string, spoken: string): void {
    this.#shown.textContent = shown;
    this.input.setAttribute("aria-valuetext", spoken);
    const [min, max] = [Number(this.input.min), Number(this.input.max)];
    this.input.style.setProperty("--filled", `${max > min ? (100 * (this.value - min)) / (max - min) : 0}%`);
  }
}

// Legends.

export function legend(...items: [kind: string, text: string][]): HTMLElement {
  return h(
    "ul",
    { class: "legend", "aria-label": "Legend" },
    ...items.map(([kind, text]) => h("li", {}, h("span", { class: `swatch swatch-${kind}`, "aria-hidden": "true" }), text)),
  );
}

// Steps.

const PAUSE = 1600; // milliseconds that a step stands before the next one, when it plays

const ICONS = {
  previous: "M15 5 8 12l7 7",
  next: "m9 5 7 7-7 7",
  play: "M8 5.5v13l10.5-6.5z",
  pause: "M8 5.5v13M16 5.5v13",
};

/** Previous, play or pause, next, and a range to jump with. Says where it is by calling `onStep`. */
export class StepControls {
  readonly root: HTMLElement;
  readonly #slider: Slider;
  readonly #previous = iconButton("previous", "Previous step");
  readonly #play = iconButton("play", "Play");
  readonly #next = iconButton("next", "Next step");
  readonly #onStep: (step: number) => void;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #step = 0;
  #last = 0;

  constructor(label: string, onStep: (step: number) => void) {
    this.#onStep = onStep;
    this.#slider = new Slider({ label: "Step", min: 0, max: 0, value: 0, onInput: (step) => this.go(step) });
    this.#previous.addEventListener("click", () => this.go(this.#step - 1));
    this.#next.addEventListener("click", () => this.go(this.#step + 1));
    this.#play.addEventListener("click", () => (this.playing ? this.pause() : this.play()));
    this.root = h(
      "div",
      { class: "steps", role: "group", "aria-label": label },
      h("div", { class: "steps-buttons" }, this.#previous, this.#play, this.#next),
      this.#slider.root,
    );
  }

  get playing(): boolean {
    return this.#timer !== undefined;
  }

  get step(): number {
    return this.#step;
  }

  /** Begin a story of `last` steps after its start. */
  load(last: number): void {
    this.pause();
    this.#last = last;
    this.#slider.input.max = `${last}`;
    this.#move(0);
  }

  /** Go to a step by hand; what plays, stops. */
  go(step: number): void {
    this.pause();
    this.#move(step);
  }

  play(): void {
    if (this.#step === this.#last) this.#move(0);
    this.#wait();
    iconFor(this.#play, "pause", "Pause");
  }

  pause(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    iconFor(this.#play, "play", "Play");
  }

  /** Say what the step is about, for whoever hears the range and does not see the picture. */
  describe(text: string): void {
    this.#slider.say(`${this.#step} of ${this.#last}`, `${this.#step} of ${this.#last}: ${text}`);
  }

  focus(): void {
    this.#play.focus({ preventScroll: true });
  }

  /** Arrow keys, Home and End, wherever in the picture the focus is; a control that uses them itself keeps them. */
  handleKeys(root: HTMLElement): void {
    root.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      if (event.target instanceof HTMLElement && event.target.matches("input, select, summary, summary *")) return;
      const target = { ArrowLeft: this.#step - 1, ArrowRight: this.#step + 1, Home: 0, End: this.#last }[event.key];
      if (target === undefined) return;
      event.preventDefault();
      this.go(target);
    });
  }

  #wait(): void {
    this.#timer = setTimeout(() => {
      this.#move(this.#step + 1);
      if (this.#step < this.#last) this.#wait();
      else this.pause();
    }, PAUSE);
  }

  #move(step: number): void {
    this.#step = Math.max(0, Math.min(step, this.#last));
    this.#slider.value = this.#step;
    // Not `disabled`: a button that takes the focus away from itself is a trap for the keyboard.
    this.#previous.setAttribute("aria-disabled", String(this.#step === 0));
    this.#next.setAttribute("aria-disabled", String(this.#step === this.#last));
    this.#onStep(this.#step);
  }
}

function iconButton(icon: keyof typeof ICONS, label: string): HTMLButtonElement {
  const button = h("button", { type: "button", class: "step-button" });
  iconFor(button, icon, label);
  return button;
}

function iconFor(button: HTMLButtonElement, icon: keyof typeof ICONS, label: string): void {
  if (button.getAttribute("aria-label") === label) return;
  const filled = icon === "play";
  button.replaceChildren(svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true", class: filled ? "filled" : "" }, svg("path", { d: ICONS[icon] })));
  button.setAttribute("aria-label", label);
  button.title = label;
}

export function svg<Tag extends keyof SVGElementTagNameMap>(
  tag: Tag,
  attributes: Record<string, string | number>,
  ...children: (SVGElement | string)[]
): SVGElementTagNameMap[Tag] {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

// Owners and blocks.

export interface Owner {
  name: string;
  /** Stands for the owner where there is no room for its name. */
  letter: string;
  /** Which of the palette's owner colours it has. */
  colour: number;
}

const OWNER_COLOURS = 6;

/** Give each name a letter of its own, its first where that is still to be had, and a colour. */
export function owners(names: readonly string[]): Map<string, Owner> {
  const taken = new Set<string>();
  return new Map(
    names.map((name, index) => {
      const initial = name.charAt(0).toUpperCase();
      let letter = initial;
      for (let number = 2; taken.has(letter); number++) letter = `${initial}${number}`;
      taken.add(letter);
      return [name, { name, letter, colour: (index % OWNER_COLOURS) + 1 }];
    }),
  );
}

export function ownerChip({ letter, colour }: Owner): HTMLElement {
  return h("span", { class: "owner", style: `--owner: var(--owner-${colour})` }, letter);
}

/** A fill of all the owners' colours, in stripes where there is more than one. */
export function ownersFill(all: readonly Owner[]): string {
  const colours = all.map(({ colour }) => `var(--owner-${colour})`);
  if (colours.length < 2) return colours[0] ?? "var(--picture-held)";
  const share = 100 / colours.length;
  const stops = colours.map((colour, index) => `${colour} ${index * share}% ${(index + 1) * share}%`);
  return `linear-gradient(135deg, ${stops.join(", ")})`;
}

/** The places of one block, those that hold tokens filled. */
export function slots(count: number, filled: number, fill: string): HTMLElement {
  const places = Array.from({ length: count }, (_, place) =>
    h("span", place < filled ? { class: "slot slot-filled", style: `background: ${fill}` } : { class: "slot" }),
  );
  return h("span", { class: "slots", "aria-hidden": "true" }, ...places);
}
