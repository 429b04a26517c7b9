/** Makes elements: `h("p", { class: "x" }, "text", child)`. Text is text; nothing is ever parsed as HTML. */

type Child = Node | string | null | false | undefined;
type Attributes = Record<string, string | boolean | null | undefined>;

export function h<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (typeof value === "string") element.setAttribute(name, value);
  }
  for (const child of children) if (child) element.append(child);
  return element;
}
