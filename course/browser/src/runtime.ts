/**
 * What every Python of this page is made from: fetched, compiled and unpacked once, when the first one is made.
 *
 * A Python that takes a killed one's place then asks the network for nothing and compiles nothing. It is still made
 * from scratch: no memory of a Python that ran is ever used again.
 */

import { loadArchive } from "./archives";
import { asset, get, pyodideFolder } from "./assets";
import { onceEach } from "./once";
import type { Runtime } from "./protocol";

export const loadRuntime = onceEach<void, Runtime>(fetchRuntime);

async function fetchRuntime(): Promise<Runtime> {
  const [wasm, library, judge] = await Promise.all([
    get(`${pyodideFolder()}pyodide.asm.wasm`).then(compile),
    get(asset("library.bin")).then(decompress),
    loadArchive("judge"),
  ]);
  return { wasm, library, judge };
}

/** Compile while the bytes arrive, which a browser does only for a host that names the type rightly. */
async function compile(response: Response): Promise<WebAssembly.Module> {
  const streams = response.headers.get("Content-Type")?.startsWith("application/wasm");
  return streams ? WebAssembly.compileStreaming(response) : WebAssembly.compile(await response.arrayBuffer());
}

/** The library comes compressed, so that it is small on a host that sends such files as they are. */
async function decompress(response: Response): Promise<ArrayBuffer> {
  if (!response.body) throw new Error("the standard library is empty");
  return new Response(response.body.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}
