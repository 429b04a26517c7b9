/** The files beside this bundle, by addresses that work wherever the site is. */

/** A digest of everything that was built; it keeps a stale file of an older build out of a newer one. */
declare const BUILD: string;

export function asset(path: string): string {
  const address = new URL(path, import.meta.url);
  address.searchParams.set("v", BUILD);
  return address.href;
}

export async function get(address: string): Promise<Response> {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${new URL(address).pathname} answered ${response.status}`);
  return response;
}

/** The folder of Pyodide's files; its name carries Pyodide's version, and Pyodide adds file names to it. */
export function pyodideFolder(): string {
  return new URL(`pyodide-${PYODIDE_VERSION}/`, import.meta.url).href;
}

declare const PYODIDE_VERSION: string;
