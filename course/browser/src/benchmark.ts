/** What the benchmark's two pages do: one makes the course's Python, the other a stock Pyodide. The site has no use for it. */

import { loadExercise } from "./exercise";
import { Python } from "./python";

/** Make a Python; returns when it is ready, and how to end it. */
type Make = () => Promise<() => void>;

async function course(): Promise<() => void> {
  const python = new Python();
  await python.prepare(await loadExercise("kv-bytes"));
  return () => python.kill();
}

/** Pyodide as its documentation starts it in a worker, without the course: less than the other has to do. */
const STOCK = `
  import { loadPyodide } from "ADDRESS";
  await loadPyodide();
  postMessage("ready");
`;

async function stock(): Promise<() => void> {
  const address = new URL("/stock/pyodide.mjs", location.href).href;
  const script = new Blob([STOCK.replace("ADDRESS", address)], { type: "text/javascript" });
  const worker = new Worker(URL.createObjectURL(script), { type: "module" });
  await new Promise((resolve) => worker.addEventListener("message", resolve, { once: true }));
  return () => worker.terminate();
}

const settings = new URLSearchParams(location.search);
const make: Make = settings.get("python") === "stock" ? stock : course;
let current = make();

/** Milliseconds from the navigation to the first Python. */
const loaded = current.then(() => performance.now());

/** Milliseconds from each of so many kills to the next Python. */
async function respawn(kills: number): Promise<number[]> {
  const took = [];
  for (let turn = 0; turn < kills; turn++) {
    const kill = await current;
    const begun = performance.now();
    kill();
    await (current = make());
    took.push(performance.now() - begun);
  }
  return took;
}

Object.assign(globalThis, { loaded, respawn });
