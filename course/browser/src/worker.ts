/** The worker: one Python with the course's judge in it. It answers requests and decides nothing. */

import type { PyodideAPI } from "pyodide";
import { asset, pyodideFolder } from "./assets";
import type { Message, Request } from "./protocol";

interface Judge {
  check(exercise: string, source: string, post: (events: string) => void): string;
  lost(exercise: string, events: string, reason: string): string;
}

const COURSE = "/course";

function send(message: Message): void {
  postMessage(message);
}

async function start(): Promise<Judge> {
  const archive = fetch(asset("course.zip"));
  const { loadPyodide } = (await import(`${pyodideFolder()}pyodide.mjs`)) as typeof import("pyodide");
  const python: PyodideAPI = await loadPyodide({
    indexURL: pyodideFolder(),
    stdin: () => null,
    stdout: () => {},
    stderr: () => {},
    env: { HOME: "/home/pyodide", PYTHONDONTWRITEBYTECODE: "1" },
  });
  python.unpackArchive(await bytes(await archive), "zip", { extractDir: COURSE });
  // Everything that the first check would import is imported now, so that no run pays for it.
  return python.runPython(`
import sys
sys.path.insert(0, ${JSON.stringify(COURSE)})
from course.judge import exercise, page
exercise.load_exercises()
page
`) as Judge;
}

async function bytes(response: Response): Promise<Uint8Array> {
  if (!response.ok) throw new Error(`${new URL(response.url).pathname} answered ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

function answer(judge: Judge, request: Request): string {
  if (request.kind === "lost") return judge.lost(request.exercise, request.events, request.reason);
  send({ kind: "started", run: request.run });
  return judge.check(request.exercise, request.source, (events) => send({ kind: "events", run: request.run, events }));
}

// Requests may come while Python still loads.
const judge = start();

// Pyodide never settles when its WebAssembly does not arrive; the reason shows up as a rejection that nobody handles.
addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  send({ kind: "broken", message: String(event.reason) });
});

judge.then(
  () => send({ kind: "ready" }),
  (error: unknown) => send({ kind: "broken", message: String(error) }),
);

addEventListener("message", async ({ data }: MessageEvent<Request>) => {
  const ready = await judge;
  try {
    send({ kind: "report", run: data.run, report: answer(ready, data) });
  } catch (error) {
    const raised = error instanceof Error && error.name === "PythonError";
    send(raised ? { kind: "failed", run: data.run, message: String(error) } : { kind: "gone", run: data.run });
  }
});
