"""Times Python in the page against a page that loads the stock runtime: `python -m course.browser.benchmark`.

Both pages are loaded in turn, in the same browser, from the same server. Ratios of such pairs can be compared between
machines; milliseconds cannot. It needs the built site (`make site`) and writes a results file, which says what it was
measured on. On a busy machine, believe the processor times: they count no waiting.

- load: from the navigation to a Python that is ready to check the first exercise, with nothing in the browser's cache;
  and the processor time that all of the browser's processes took for it.
- again: the same, with the files in the cache.
- respawn: from the killing of one Python to the next that is ready. A spare, which the site keeps ready while an answer
  runs long, does better than this.
- check: from the call that a press of Check makes to the verdict, in the real page, with Python ready. The median is
  over the exercises of the first chapters, which are small; of those that run in the emulator the slowest counts.
- bytes: what a chapter asks for until the verdict of its first check, as a static host would compress it.
- memory: of the tab's process, with its Python, before and after a reader stops an endless loop again and again.
- engine: new tokens a second of the engine in the page, with what stands in its fields.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gzip
import http.server
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

from course.browser.build import esbuild_modules
from course.browser.bytecode import PYODIDE, pyodide_version
from course.browser.exercises import catalogue
from course.browser.output import ROOT
from course.judge.exercise import Exercise, load_exercises
from course.judge.stub import exercise_solution
from course.setup.chromium import find_chromium, launch_arguments
from course.setup.node import find_node

SITE = ROOT / "site"
RESULTS = ROOT / "course" / "browser" / "results" / "page.json"
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm"}
# What static hosts compress, as a rule: text and WebAssembly. Archives and fonts go out as they are.
COMPRESSED = {".html", ".css", ".js", ".mjs", ".json", ".svg", ".txt", ".wasm", ".xml"}
SMALL = (1, 2)  # the chapters whose checks the median is over
KILLED = "slot-mapping"  # the exercise whose page is looked at for memory
ENGINE = "continuous-batching/"
CHECKS, KILLS = 10, 3
TARGETS = {
    "load, of stock": 0.45,
    "respawn, of stock": 0.35,
    "check, median ms": 50.0,
    "check in the emulator, slowest median ms": 1500.0,
    "bytes before the first verdict, MB, gzip": 6.5,
    "engine, tokens a second": 20.0,
}
AT_LEAST = {"engine, tokens a second"}  # of the targets; the others are met by what is no larger
# An answer that ends never; it is stopped when a spare Python has begun to load.
ENDLESS = "while True: pass\n"

Numbers = dict[str, Any]


class Handler(http.server.SimpleHTTPRequestHandler):
    """The site, the stock Pyodide under `/stock/`, and the benchmark's own page and module."""

    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments: Any, made: Path, **settings: Any) -> None:
        self._made = made
        self.extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, **TYPES}
        super().__init__(*arguments, directory=str(SITE), **settings)

    def translate_path(self, path: str) -> str:
        place = urlsplit(path).path
        if place.startswith("/stock/"):
            return str(PYODIDE / Path(place).name)
        if place.rpartition("/")[2] in ("benchmark.js", "benchmark.html"):
            return str(self._made / Path(place).name)
        return super().translate_path(path)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=600")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def serve() -> Iterator[str]:
    """Serve the site and the benchmark's page; gives the address."""
    with tempfile.TemporaryDirectory() as folder:
        esbuild_modules("src/benchmark.ts", Path(folder), "benchmark")
        page = (
            '<!doctype html><title>Benchmark</title><script type="module" src="/assets/course/benchmark.js"></script>'
        )
        Path(folder, "benchmark.html").write_text(page)
        handler = functools.partial(Handler, made=Path(folder))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_port}"
            server.shutdown()


def time_starts(browser: Browser, address: str, python: str) -> Numbers:
    """Return milliseconds of one cold load, of one with a filled cache, and of the respawns after each."""
    context = browser.new_context()
    times: Numbers = {"respawn": []}
    for name in ("load", "again"):
        page = context.new_page()
        page.set_default_timeout(300_000)
        before = processor_times(browser)
        page.goto(f"{address}/benchmark.html?python={python}")
        times[name] = page.evaluate("loaded")
        after = processor_times(browser)
        times[f"{name}, processor"] = sum(spent - before.get(process, 0) for process, spent in after.items()) * 1000
        times["respawn"] += page.evaluate(f"respawn({KILLS})")
        page.close()
    context.close()
    return times


def processor_times(browser: Browser) -> dict[int, float]:
    """Return the seconds of processor time that each process of the browser has taken."""
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return {process["id"]: process["cpuTime"] for process in processes}


class Chapter:
    """A page of the site with exercises on it, and every file that it asked for."""

    def __init__(self, browser: Browser, address: str, path: str) -> None:
        self.address = address
        self.asked: list[str] = []
        self.page: Page = browser.new_context().new_page()
        self.page.set_default_timeout(300_000)
        self.page.context.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(f"{address}/{path}")
        self.page.wait_for_load_state("networkidle")

    @classmethod
    @contextlib.contextmanager
    def opened(cls, browser: Browser, address: str, path: str) -> Iterator[Chapter]:
        chapter = cls(browser, address, path)
        yield chapter
        chapter.page.context.close()

    def check(self, exercise: str, source: str) -> float:
        """Return the milliseconds of one check."""
        took, status = self.page.evaluate(
            """async ([name, source]) => {
                const late = new Promise((_, reject) => {
                    setTimeout(() => reject(new Error(`${name}: no verdict within two minutes`)), 120_000);
                });
                const element = document.querySelector(`course-exercise[name="${name}"]`);
                await Promise.race([element.ready, late]);
                element.source = source;
                element.querySelector(".bench-editor").shadowRoot.querySelector(".cm-content").focus();
                // A reader's code stands in the editor, drawn, before they press Check.
                await new Promise((resolve) => setTimeout(resolve, 200));
                const begun = performance.now();
                const report = await Promise.race([element.check(), late]);
                return [performance.now() - begun, report?.status ?? element.querySelector(".bench").innerText];
            }""",
            [exercise, source],
        )
        if status != "pass":
            raise RuntimeError(f"the reference does not pass {exercise}: {status}")
        return float(took)

    def kill(self, exercise: str, source: str) -> float:
        """Stop an answer that never ends; return the milliseconds from the stop to the verdict."""
        took = self.page.evaluate(
            """async ([name, source]) => {
                const element = document.querySelector(`course-exercise[name="${name}"]`);
                element.source = source;
                const run = element.check();
                await new Promise((resolve) => setTimeout(resolve, 1000));
                const begun = performance.now();
                element.stop();
                await run;
                return performance.now() - begun;
            }""",
            [exercise, source],
        )
        return float(took)

    def engine_speed(self) -> float:
        """Run the page's engine to its end; return its new tokens a second."""
        self.page.get_by_role("button", name="Start", exact=True).click()
        status = self.page.locator(".engine-status", has_text=re.compile("^(Finished|Failed)"))
        text = status.inner_text()
        found = re.search(r"(\d+) a second", text)
        if found is None or not text.startswith("Finished"):
            raise RuntimeError(f"the engine in the page: {text}")
        return float(found[1])

    def sizes(self) -> list[Numbers]:
        """Return what was asked for, with its size as it is and as hosts compress it."""
        files = []
        for url in dict.fromkeys(self.asked):
            if not url.startswith(self.address):
                continue
            path = SITE / urlsplit(url).path.lstrip("/")
            path = path / "index.html" if path.is_dir() else path
            if path.is_file():
                files.append({"file": path.relative_to(SITE).as_posix(), **compressed_sizes(path)})
        return files


@functools.cache
def compressed_sizes(path: Path) -> Numbers:
    content = path.read_bytes()
    if path.suffix not in COMPRESSED:
        return {"raw": len(content), "gzip": len(content), "brotli": len(content)}
    script = "process.stdout.write(String(require('zlib').brotliCompressSync(require('fs').readFileSync(0)).length))"
    node = str(find_node().node)
    brotli = subprocess.run([node, "-e", script], stdin=path.open("rb"), capture_output=True, check=True).stdout
    return {"raw": len(content), "gzip": len(gzip.compress(content, 6)), "brotli": int(brotli)}


def tab_memory(browser: Browser) -> int | None:
    """Return the bytes of memory that the largest renderer of the browser has for itself; None where not Linux."""
    if sys.platform != "linux":
        return None
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    sizes = []
    for process in processes:
        with contextlib.suppress(OSError):  # it may have ended
            rollup = Path(f"/proc/{process['id']}/smaps_rollup").read_text()
            if process["type"] == "renderer":
                sizes.append(
                    sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) * 1024
                )
    return max(sizes, default=None)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text} …", file=sys.stderr, flush=True)


def measure(browser: Browser, address: str, runs: int) -> Numbers:
    course, stock = [], []
    for turn in range(runs):
        say(f"loads, run {turn + 1} of {runs}")
        stock.append(time_starts(browser, address, "stock"))
        course.append(time_starts(browser, address, "course"))
    first: dict[str, float] = {}
    checks: dict[str, list[float]] = {}
    sizes: dict[str, list[Numbers]] = {}
    for path, exercises in exercises_by_page().items():
        say(f"{path}: the first check")
        with Chapter.opened(browser, address, path) as chapter:
            solutions = {each.id: exercise_solution(each.id) for each in exercises}
            first[path] = chapter.check(*next(iter(solutions.items())))
            say(f"{path}: sizes")
            sizes[path] = chapter.sizes()
            for name, solution in solutions.items():
                say(f"{path}: {CHECKS} checks of {name}")
                checks[name] = [chapter.check(name, solution) for _ in range(CHECKS)]
    memory, stops = measure_kills(browser, address)
    say("the engine in the page")
    with Chapter.opened(browser, address, ENGINE) as chapter:
        speed = chapter.engine_speed()
    return {
        "starts": {"stock": stock, "course": course},
        "first check, ms": first,
        "checks, ms": checks,
        "from stop to verdict, ms": stops,
        "bytes": {
            path: {kind: sum(each[kind] for each in files) for kind in ("raw", "gzip", "brotli")} | {"files": files}
            for path, files in sizes.items()
        },
        "memory of the tab, bytes": memory,
        "engine, tokens a second": speed,
    }


def exercises_by_page() -> dict[str, list[Exercise]]:
    """Return every page on which an exercise can be checked, with those exercises, in course order."""
    page_of = {entry["id"]: entry["page"] for entry in json.loads(catalogue())}
    found: dict[str, list[Exercise]] = {}
    for exercise in load_exercises():
        if exercise.runs_in_page and exercise.id in page_of:
            found.setdefault(page_of[exercise.id], []).append(exercise)
    return found


def measure_kills(browser: Browser, address: str) -> tuple[Numbers, list[float]]:
    """Return the tab's memory before and after kills of Python, and how long each took until the verdict."""
    path = next(path for path, found in exercises_by_page().items() if KILLED in [each.id for each in found])
    with Chapter.opened(browser, address, path) as chapter:
        memory: Numbers = {"before the first check": tab_memory(browser)}
        chapter.check(KILLED, exercise_solution(KILLED))
        memory["after 0 kills"] = tab_memory(browser)
        stops = []
        for kills in range(1, 11):
            say(f"kill {kills} of 10")
            stops.append(chapter.kill(KILLED, ENDLESS))
            if kills in (1, 10):
                memory[f"after {kills} kill{'s' if kills > 1 else ''}"] = tab_memory(browser)
    return memory, stops


def summary(measured: Numbers) -> Numbers:
    """Return what the targets are about, with the smallest and the largest of the runs."""
    stock, course = measured["starts"]["stock"], measured["starts"]["course"]

    def flat(runs: list[Numbers], name: str) -> list[float]:
        values = (each[name] for each in runs)
        return [time for value in values for time in (value if isinstance(value, list) else [value])]

    found: Numbers = {}
    for name in ("load", "load, processor", "again", "respawn"):
        times = {which: flat(runs, name) for which, runs in (("stock", stock), ("course", course))}
        found[f"{name}, ms"] = {which: spread(values) for which, values in times.items()}
        # One ratio a run: a machine that is busy is busy for both.
        ratios = [
            statistics.median(flat([ours], name)) / statistics.median(flat([theirs], name))
            for ours, theirs in zip(course, stock, strict=True)
        ]
        found[f"{name}, of stock"] = spread(ratios)
    checks = {name: spread(times) for name, times in measured["checks, ms"].items()}
    small = [each.id for each in load_exercises() if each.chapter in SMALL and each.id in checks]
    found["check, median ms"] = spread([time for name in small for time in measured["checks, ms"][name]])
    emulated = [each.id for each in load_exercises() if "emulator" in each.executors and each.id in checks]
    found["check in the emulator, slowest median ms"] = max(checks[name]["median"] for name in emulated)
    found["check, ms"] = checks
    found["from stop to verdict, ms"] = spread(measured["from stop to verdict, ms"])
    for kind in ("gzip", "brotli", "raw"):
        found[f"bytes before the first verdict, MB, {kind}"] = (
            max(each[kind] for each in measured["bytes"].values()) / 1e6
        )
    found["engine, tokens a second"] = measured["engine, tokens a second"]
    return found


def spread(values: list[float]) -> Numbers:
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "runs": len(values)}


def setting(browser: Browser) -> Numbers:
    """Return what a reader needs to judge the numbers: command, commit, hardware, versions, and how busy it was."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    changed = subprocess.run(
        [*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=False
    ).stdout
    processor = platform.processor() or platform.machine()
    memory = None
    if sys.platform == "linux":
        models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        processor = models[0].partition(":")[2].strip() if models else processor
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "command": " ".join(["python -m course.browser.benchmark", *sys.argv[1:]]),
        "commit": commit or None,
        "uncommitted changes": bool(changed),
        "hardware": {"processor": processor, "cores": os.cpu_count(), "memory, bytes": memory},
        "versions": {
            "system": f"{platform.system()} {platform.release()}",
            "browser": f"Chromium {browser.version}, without a window",
            "pyodide": pyodide_version(),
            "python": platform.python_version(),
        },
        "load average at the start": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def is_met(name: str, number: float) -> bool:
    return number >= TARGETS[name] if name in AT_LEAST else number <= TARGETS[name]


def report(found: Numbers) -> None:
    for name, value in found.items():
        number = value["median"] if isinstance(value, dict) and "median" in value else value
        target = TARGETS.get(name)
        verdict = "" if target is None else f"   target {target:g}: {'met' if is_met(name, number) else 'MISSED'}"
        if isinstance(number, dict):
            number = ", ".join(f"{which} {each['median']:.0f}" for which, each in number.items())
            print(f"{name:42} {number}")
        else:
            print(f"{name:42} {number:.3g}{verdict}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Times Python in the page against a page with the stock runtime.")
    parser.add_argument("--runs", type=int, default=5, help="how many pairs of pages (5)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the results file")
    arguments = parser.parse_args()
    executable = find_chromium()
    if executable is None or not (SITE / "index.html").is_file():
        print("needs a Chromium and the built site: run `make site`", file=sys.stderr)
        return 2
    with serve() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=launch_arguments())
        where = setting(browser)
        measured = measure(browser, address, arguments.runs)
        browser.close()
    found = summary(measured)
    report(found)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    results = {**where, "targets": TARGETS, "summary": found, "measured": measured}
    arguments.output.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
