"""A browser on the built site.

Every test also fails when the page logs an error, or asks anyone but the site for anything.
"""

import copy
import functools
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, expect, sync_playwright

from course.judge.exercise import load_exercises
from course.setup.chromium import find_chromium, launch_arguments

SITE = Path(__file__).resolve().parents[2] / "site"
ORIGIN = "http://localhost/"  # what mkdocs.yml says where SITE_URL is not set
PAGES = {
    1: "why-paging/",
    2: "block-pool/",
    3: "paged-attention/",
    4: "continuous-batching/",
    5: "triton-kernel/",
    6: "gpt2-parity/",
    7: "int8-kv/",
}
# What only a Python needs, in the addresses of its files.
PYTHON = ("pyodide", "course/worker.js", "course/library.bin", "course/archives/")
# A cold start of Python on a busy machine with two cores; waiting ends as soon as the thing is there.
PATIENCE = 60_000
# What stands below an element moves when the element draws itself, and a click that is under way is then lost. So a
# page is handled once everything in it is drawn: by its own word, and for one frame more.
IS_DRAWN = """() => document.readyState === "complete" && document.fonts.status === "loaded" &&
    [...document.querySelectorAll("article *")].every(({ localName, classList }) =>
        !localName.startsWith("course-") || ["course-progress", "course-quiz", "course-work"].includes(localName) ||
        classList.contains("is-ready") || classList.contains("is-drawn"))"""
NEXT_FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
expect.set_options(timeout=PATIENCE)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """A plain static host: right types for modules and WebAssembly, no headers of its own."""

    types: ClassVar = {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm"}
    extensions_map: ClassVar = {**http.server.SimpleHTTPRequestHandler.extensions_map, **types}

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="session")
def port() -> Iterator[int]:
    """The port at which the built site is served."""
    if not (SITE / "index.html").is_file():
        pytest.fail("the site is not built: run `make site`", pytrace=False)
    handler = functools.partial(QuietHandler, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(scope="session")
def chromium(port: int) -> Iterator[Browser]:
    executable = find_chromium()
    if executable is None:
        pytest.fail("no Chromium or Chrome: run `python -m course.setup.chromium`", pytrace=False)
    with sync_playwright() as playwright:
        # The site is built for an address without a port, and instant navigation holds it to that.
        address = f"--host-resolver-rules=MAP localhost:80 127.0.0.1:{port}"
        browser = playwright.chromium.launch(executable_path=executable, args=[*launch_arguments(), address])
        yield browser
        browser.close()


class Visit:
    """A page in a fresh browser profile, and what it asked the network for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.context = page.context
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.context.on("request", self._note_request)
        self._listen(page)

    def _listen(self, page: Page) -> None:
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)

    def second_tab(self) -> "Visit":
        """Return a visit in another tab of the same browser profile, whose errors and requests count here."""
        other = copy.copy(self)
        other.page = self.context.new_page()
        self._listen(other.page)
        return other

    def _note_request(self, request: Request) -> None:
        self.requests.append(request.url)

    def open(self, path: str) -> None:
        self.page.goto(ORIGIN + path)
        self.wait_until_drawn()

    def open_plain(self, path: str) -> None:
        """Open a page of which nothing draws itself: JavaScript is off, or the course's does not come."""
        self.page.goto(ORIGIN + path)

    def reload(self) -> None:
        self.page.reload()
        self.wait_until_drawn()

    def wait_until_drawn(self) -> None:
        self.page.bring_to_front()  # a tab at the back draws a frame a second
        self.page.wait_for_function(IS_DRAWN)
        self.page.evaluate(NEXT_FRAME)

    def open_chapter(self, number: int) -> None:
        self.open(PAGES[number])

    def exercise(self, exercise_id: str) -> "Bench":
        """Open the chapter of an exercise and return its workbench."""
        self.open_chapter(next(each.chapter for each in load_exercises() if each.id == exercise_id))
        return self.bench(exercise_id)

    def bench(self, exercise_id: str) -> "Bench":
        """Return the workbench of an exercise on the page that is open, or that a link has just asked for."""
        bench = Bench(self.page, exercise_id)
        self.wait_until_drawn()
        return bench

    def asked_elsewhere(self) -> list[str]:
        return [url for url in self.requests if not url.startswith((ORIGIN, "data:", "blob:"))]

    def asked_for_python(self) -> bool:
        return any(part in url for url in self.requests for part in PYTHON)


class Bench:
    """One exercise on a page, as a reader handles it."""

    def __init__(self, page: Page, exercise_id: str) -> None:
        self.page = page
        self.id = exercise_id
        self.root = page.locator(f"course-exercise[name='{exercise_id}']")
        self.editor = self.root.locator(".cm-content")
        self.check_button = self.root.get_by_role("button", name="Check", exact=True)
        self.stop_button = self.root.get_by_role("button", name="Stop")
        self.status = self.root.locator(".bench-status")
        self.verdict = self.root.get_by_role("region", name="Verdict")
        self.reference = self.root.locator(".exercise-reference")
        self.reference_fold = self.reference.locator("summary")
        self.notes = self.root.locator(".bench-note")
        self.editor.wait_for()

    @property
    def code(self) -> str:
        return str(self.root.evaluate("element => element.source"))

    def write(self, code: str) -> None:
        """Put `code` in place of what is in the editor, as one paste."""
        self.editor.focus()
        self.page.keyboard.press("ControlOrMeta+A")
        self.page.keyboard.insert_text(code)

    def replace_line(self, containing: str, typed: str) -> None:
        """Type over one line, key by key."""
        self.editor.locator(".cm-line", has_text=containing).click()
        self.page.keyboard.press("Home")
        self.page.keyboard.press("Shift+End")
        self.page.keyboard.type(typed)

    def fold_reference(self) -> None:
        """Open or close the reference.

        By key: it stands below the editor, which guesses the height of lines until they are in sight. When a mouse has
        scrolled there, the fold may still move between press and release.
        """
        self.reference_fold.press("Enter")

    def check(self) -> Locator:
        """Press Check and return the verdict.

        By key: what another exercise shows meanwhile may move the button between a mouse's press and its release.
        """
        self.check_button.press("Enter")
        return self.wait()

    def wait(self) -> Locator:
        expect(self.check_button).to_be_visible(timeout=PATIENCE)
        expect(self.verdict).to_be_visible(timeout=PATIENCE)
        return self.verdict


def new_visit(chromium: Browser, **settings: object) -> Visit:
    context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
    return Visit(context.new_page())


@pytest.fixture
def visit_with(chromium: Browser) -> Iterator[Callable[..., Visit]]:
    """Make a visit with settings of a browser context, such as `viewport` or `color_scheme`."""
    visits: list[Visit] = []

    def make(**settings: object) -> Visit:
        visits.append(new_visit(chromium, **settings))
        return visits[-1]

    yield make
    for visit in visits:
        visit.page.context.close()
        assert visit.asked_elsewhere() == []
        assert visit.errors == []


@pytest.fixture
def visit(visit_with: Callable[..., Visit]) -> Visit:
    return visit_with()


@pytest.fixture(scope="session")
def open_chapter(chromium: Browser) -> Iterator[Visit]:
    visit = new_visit(chromium)
    visit.open(PAGES[2])
    yield visit
    visit.page.context.close()


@pytest.fixture
def chapter(open_chapter: Visit) -> Iterator[Visit]:
    """The second chapter on a page that many tests share, since loading Python is what takes time."""
    yield open_chapter
    for exercise in open_chapter.page.locator("course-exercise").all():
        exercise.evaluate("element => { element.stop(); localStorage.clear(); }")
    assert open_chapter.asked_elsewhere() == []
    assert open_chapter.errors == []
