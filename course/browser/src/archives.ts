/** Python's code in zips, which `course/browser/archive.py` packs: each is fetched once, when it is first needed. */

import { asset, get } from "./assets";
import { onceEach } from "./once";

export const loadArchive = onceEach(fetchArchive);

async function fetchArchive(name: string): Promise<ArrayBuffer> {
  const path = `archives/${name}.zip`;
  const content = await (await get(asset(path))).arrayBuffer();
  // Some hosts answer with a page of theirs for whatever they do not have.
  if (!new TextDecoder("latin1").decode(content.slice(0, 2)).startsWith("PK")) throw new Error(`${path} is no archive`);
  return content;
}
