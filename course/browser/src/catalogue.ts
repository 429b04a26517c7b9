/** Every exercise of the course, and the page that it is on; the build writes it into the bundle. */

export interface Entry {
  id: string;
  title: string;
  /** The address of its page, from the site's root. */
  page: string;
}

declare const CATALOGUE: Entry[];

export const catalogue: readonly Entry[] = CATALOGUE;

export function pageAddress(page: string): string {
  return new URL(`../../${page}`, import.meta.url).href;
}
