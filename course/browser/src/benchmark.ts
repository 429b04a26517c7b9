/** What the benchmark's two pages do: one makes the course's Python, the other a stock Pyodide. No page of the site loads it. */

import { Python } from "./python";

/** Make a Python; returns when it is ready, and how to end it. */
type Make = () => Promise<() => void>;

async function course(): Promise<() => void> {
  const python = new Python();
  await python.ready;
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

/** Milliseconds from the navigation to the first Python, then from each kill to the next one. */
async function measure(make: Make, kills: number): Promise<{ load: number; respawns: number[] }> {
  let kill = await make();
  const load = performance.now();
  const respawns = [];
  for (let turn = 0; turn < kills; turn++) {
    const begun = performance.now();
    kill();
    kill = await make();
    respawns.push(performance.now() - begun);
  }
  kill();
  return { load, respawns };
}

const settings = new URLSearchParams(location.search);
const measured = measure(settings.get("python") === "stock" ? stock : course, Number(settings.get("kills")));
Object.assign(globalThis, { measured });
