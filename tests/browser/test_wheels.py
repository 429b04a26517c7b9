"""The wheel that pyodide-build's tools pack and lock, loaded in a page and put to work there."""

import json
import mimetypes
from pathlib import Path

import pytest

from course.browser import wheels
from course.judge.stub import exercise_solution

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def lock() -> Path:
    try:
        return wheels.pack([])
    except RuntimeError as error:
        pytest.skip(f"no wheels for the browser on this machine: {error}")


def test_the_course_s_wheel_loads_through_its_lock_file(visit, lock):
    def answer(route, request):
        name = request.url.rpartition("/")[2]
        folder = lock.parent if name == lock.name or name.endswith(".whl") else wheels.PYODIDE
        kind = "application/wasm" if name.endswith(".wasm") else mimetypes.guess_type(name)[0]
        route.fulfill(path=folder / name, content_type="text/javascript" if name.endswith(".mjs") else kind)

    visit.page.context.route("**/wheels/*", answer)
    visit.open("about/")
    report = visit.page.evaluate(
        """async (source) => {
            const { loadPyodide } = await import("/wheels/pyodide.mjs");
            const python = await loadPyodide({ lockFileURL: `${location.origin}/wheels/pyodide-lock.json` });
            const said = [];
            await python.loadPackage("paged-inference-course", { errorCallback: (text) => said.push(text) });
            if (said.length) throw new Error(said.join("; "));
            return python.pyimport("course.judge.page").check("slot-mapping", source, () => {});
        }""",
        exercise_solution("slot-mapping"),
    )
    assert json.loads(report)["status"] == "pass"
