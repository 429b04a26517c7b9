/** Mends what the theme leaves out for the keyboard and for screen readers: names, and tables that scroll sideways. */

/** What scrolls must take the focus, or the keyboard cannot scroll it; what does not scroll is no stop on the way. */
const tables = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth) target.setAttribute("tabindex", "0");
    else target.removeAttribute("tabindex");
  }
});

function name(root: ParentNode): void {
  for (const dialog of root.querySelectorAll(".md-search[role=dialog]")) dialog.setAttribute("aria-label", "Search");
  // A bar that runs while the next page is fetched: the page itself is announced when it is there.
  for (const bar of root.querySelectorAll(".md-progress")) bar.setAttribute("aria-hidden", "true");
  for (const table of root.querySelectorAll(".md-typeset__scrollwrap")) tables.observe(table);
  // A copy button is no place to navigate to.
  for (const bar of root.querySelectorAll("nav.md-code__nav")) bar.setAttribute("role", "none");
}

/** Name what is there now and whatever the theme adds later: copy buttons, and all of the page when it is changed. */
export function nameTheTheme(): void {
  name(document);
  const added = (change: MutationRecord) => [...change.addedNodes].filter((node) => node instanceof Element);
  const observer = new MutationObserver((changes) => {
    for (const element of changes.flatMap(added)) if (element.parentElement) name(element.parentElement);
  });
  observer.observe(document.body, { childList: true, subtree: true });
}
