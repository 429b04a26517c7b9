/** The worker: one Python with the course's judge in it. It answers requests and decides nothing. */

import { pyodideFolder } from "./assets";
import type { Message, Request, Runtime, Start } from "./protocol";

type Pyodide = typeof import("pyodide");

/** `course/judge/page.py` */
interface Judge {
  prepare(exercise: string): void;
  check(exercise: string, source: string, post: (events: string) => void): string;
  lost(exercise: string, events: string, reason: string): string;
}

/** `course/page_engine/page.py` */
interface Desk {
  start(settings: string, answers: string, post: (place: string) => void): string;
  step(): string;
}

interface Course {
  judge: Judge;
  unpack(archive: ArrayBuffer): void;
  openDesk(config: string, weights: ArrayBuffer): Desk;
}

/** Pyodide's lock file, without packages; the build writes it here, so that it need not be fetched. */
declare const PYODIDE_LOCK: import("pyodide").Lockfile;

/** Where `course/browser/archive.py` says that its code lies. */
const COURSE = "/course";

function send(message: Message): void {
  postMessage(message);
}

// The scripts load while the page fetches the rest.
const scripts = Promise.all([
  import(`${pyodideFolder()}pyodide.mjs`) as Promise<Pyodide>,
  import(`${pyodideFolder()}pyodide.asm.mjs`),
]);

async function start({ wasm, library, judge: archive }: Runtime): Promise<Course> {
  const [{ loadPyodide }] = await scripts;
  const stdLibURL = URL.createObjectURL(new Blob([library]));
  const giveBack = lend(wasm);
  const python = await loadPyodide({
    indexURL: pyodideFolder(),
    stdLibURL,
    lockFileContents: PYODIDE_LOCK,
    packageBaseUrl: pyodideFolder(),
    stdin: () => null,
    stdout: () => {},
    stderr: () => {},
    env: { HOME: "/home/pyodide", PYTHONDONTWRITEBYTECODE: "1" },
  }).finally(giveBack);
  URL.revokeObjectURL(stdLibURL);
  const unpack = (content: ArrayBuffer) => python.unpackArchive(new Uint8Array(content), "zip", { extractDir: COURSE });
  unpack(archive);
  const judge = python.runPython(`
import sys
sys.path.insert(0, ${JSON.stringify(COURSE)})
from course.judge import page
page
`) as Judge;
  return {
    judge,
    unpack: (content) => {
      unpack(content);
      // What Python knows of folders that it has looked into. `importlib.invalidate_caches` needs more of the library.
      python.runPython("import sys; sys.path_importer_cache.clear()");
    },
    openDesk: (config, weights) => python.pyimport("course.page_engine.page").Desk(config, python.toPy(new Uint8Array(weights))) as Desk,
  };
}

/**
 * Let Pyodide instantiate the page's module, where it would fetch and compile its own. Returns what undoes it.
 *
 * Pyodide has no option for this. A Pyodide that came to load its code in another way would merely be slower.
 */
function lend(wasm: WebAssembly.Module): () => void {
  const { fetch } = globalThis;
  const { instantiateStreaming } = WebAssembly;
  globalThis.fetch = (input, init) =>
    String(input).endsWith("/pyodide.asm.wasm") ? Promise.resolve(new Response()) : fetch(input, init);
  WebAssembly.instantiateStreaming = async (_, imports) => ({
    module: wasm,
    instance: await WebAssembly.instantiate(wasm, imports),
  });
  return () => {
    globalThis.fetch = fetch;
    WebAssembly.instantiateStreaming = instantiateStreaming;
  };
}

let desk: Desk | null = null;
/** The run in hand. The engine's parts are told once whom to post to, and post in every step. */
let run = 0;

function post(events: string): void {
  send({ kind: "events", run, events });
}

function answer({ judge, unpack, openDesk }: Course, request: Request): string {
  run = request.run;
  send({ kind: "started", run });
  switch (request.kind) {
    case "unpack":
      request.archives.forEach(unpack);
      return "null";
    case "prepare":
      judge.prepare(request.exercise);
      return "null";
    case "check":
      return judge.check(request.exercise, request.source, post);
    case "lost":
      return judge.lost(request.exercise, request.events, request.reason);
    case "model":
      desk = openDesk(request.config, request.weights);
      return "null";
    case "engine":
      return opened(desk).start(request.settings, request.answers, post);
    case "step":
      return opened(desk).step();
  }
}

function opened(found: Desk | null): Desk {
  if (!found) throw new Error("the engine's model is not loaded");
  return found;
}

const { promise: course, resolve } = Promise.withResolvers<Course>();

// Pyodide never settles when its WebAssembly does not arrive; the reason shows up as a rejection that nobody handles.
addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  send({ kind: "broken", message: String(event.reason) });
});

course.then(
  () => send({ kind: "ready" }),
  (error: unknown) => send({ kind: "broken", message: String(error) }),
);

addEventListener("message", async ({ data }: MessageEvent<Start | Request>) => {
  if (data.kind === "start") return resolve(start(data.runtime));
  const ready = await course;
  try {
    send({ kind: "report", run: data.run, report: answer(ready, data) });
  } catch (error) {
    const raised = error instanceof Error && error.name === "PythonError";
    send(raised ? { kind: "failed", run: data.run, message: String(error) } : { kind: "gone", run: data.run });
  }
});
