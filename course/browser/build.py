"""Builds what the site serves beside its pages: `python -m course.browser.build`.

Page fragments go to `.cache/fragments/`, everything else to `docs/assets/course/`. Nothing here is committed.
"""

import hashlib
import json
import shutil
import subprocess
import sys

from course.browser import exercises
from course.browser.archive import build_archive
from course.browser.completions import completions
from course.browser.notices import notices
from course.browser.output import ASSETS, BROWSER, BUNDLE, FRAGMENTS, NODE_MODULES, Folder
from course.judge.exercise import load_exercises
from course.setup.node import find_node

PYODIDE = NODE_MODULES / "pyodide"
PYODIDE_FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "pyodide-lock.json", "python_stdlib.zip")


def pyodide_version() -> str:
    return str(json.loads((PYODIDE / "package.json").read_text("utf-8"))["version"])


def build() -> None:
    """Build everything; `CalledProcessError` when the front end does not compile."""
    assets, fragments = Folder(ASSETS), Folder(FRAGMENTS)
    digest = hashlib.sha256()

    def put(name: str, content: bytes | str) -> None:
        data = content.encode("utf-8") if isinstance(content, str) else content
        digest.update(data)
        assets.write(name, data)

    for exercise in load_exercises():
        fragments.write(f"{exercise.id}.md", exercises.fragment(exercise))
        put(f"exercises/{exercise.id}.json", exercises.data(exercise))
        put(f"exercises/{exercise.id}.reference.json", exercises.reference(exercise))
    put("completions.json", completions())
    put("course.zip", build_archive())
    put("notices.txt", notices())
    for name in PYODIDE_FILES:
        assets.copy(PYODIDE / name, f"pyodide-{pyodide_version()}/{name}")
    for source in sorted((BROWSER / "src").rglob("*")):
        if source.is_file():
            digest.update(source.read_bytes())
    _bundle(digest.hexdigest()[:12])
    for path in sorted(BUNDLE.rglob("*")):
        if path.is_file():
            assets.copy(path, path.relative_to(BUNDLE).as_posix())
    assets.sweep()
    fragments.sweep()


def _bundle(digest: str) -> None:
    """Have esbuild write the page's modules, the worker and the styles into `BUNDLE`."""
    shutil.rmtree(BUNDLE, ignore_errors=True)
    esbuild = ["node", str(NODE_MODULES / "esbuild" / "bin" / "esbuild"), "--bundle", "--minify", "--log-level=warning"]
    modules = [
        "--format=esm",
        "--target=es2022",
        f"--define:BUILD={json.dumps(digest)}",
        f"--define:COURSE={json.dumps(exercises.course_version())}",
        f"--define:CATALOGUE={exercises.catalogue()}",
        f"--define:PYODIDE_VERSION={json.dumps(pyodide_version())}",
        f"--outdir={BUNDLE}",
    ]
    styles = ["--loader:.woff2=file", "--asset-names=fonts/[name]", f"--outdir={BUNDLE}"]
    node = find_node()
    node.run([*esbuild, "src/course.ts", "--splitting", *modules], cwd=BROWSER)
    node.run([*esbuild, "src/worker.ts", *modules], cwd=BROWSER)
    node.run([*esbuild, "src/course.css", *styles], cwd=BROWSER)


def main() -> int:
    if not PYODIDE.is_dir():
        print("the front end's packages are missing: run `make site` once", file=sys.stderr)
        return 2
    try:
        build()
    except subprocess.CalledProcessError as error:
        print(f"the front end does not compile ({error.cmd[1]} {error.cmd[-1]})", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
