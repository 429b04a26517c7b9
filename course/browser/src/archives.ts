/** Python's code in zips, which `course/browser/archive.py` packs: each is fetched once, when it is first needed. */

import { asset, get } from "./assets";

const archives = new Map<string, Promise<ArrayBuffer>>();

/** Load an archive once; a failed load is tried again the next time. */
export function loadArchive(name: string): Promise<ArrayBuffer> {
  let archive = archives.get(name);
  if (!archive) {
    archive = fetchArchive(name);
    archive.catch(() => archives.delete(name));
    archives.set(name, archive);
  }
  return archive;
}

async function fetchArchive(name: string): Promise<ArrayBuffer> {
  const path = `archives/${name}.zip`;
  const content = await (await get(asset(path))).arrayBuffer();
  // Some hosts answer with a page of theirs for whatever they do not have.
  if (!new TextDecoder("latin1").decode(content.slice(0, 2)).startsWith("PK")) throw new Error(`${path} is no archive`);
  return content;
}
