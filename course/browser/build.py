"""Builds what the site serves beside its pages: `python -m course.browser.build`.

Page fragments go to `.cache/fragments/`, everything else to `docs/assets/course/`. Nothing here is committed.
"""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

from course.browser import exercises
from course.browser.archive import ENGINE, build_archives
from course.browser.bytecode import PYODIDE, pyodide_version
from course.browser.completions import completions
from course.browser.library import build_library
from course.browser.notices import notices
from course.browser.output import ASSETS, BROWSER, BUNDLE, FRAGMENTS, NODE_MODULES, ROOT, Folder
from course.browser.pictures import pictures
from course.browser.scores import score_table
from course.browser.speed import speed_fragments
from course.judge.exercise import load_exercises
from course.page_engine.parts import MODULES as ENGINE_MODULES
from course.setup.node import find_node

ESBUILD = ["node", str(NODE_MODULES / "esbuild" / "bin" / "esbuild"), "--bundle", "--minify", "--log-level=warning"]
MODEL = ROOT / "course" / "model"  # for the engine in the page
PYODIDE_FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm")


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
    fragments.write("scores.md", score_table())
    for name, fragment in speed_fragments().items():
        fragments.write(name, fragment)
    put("completions.json", completions())
    for name, archive in build_archives().items():
        put(f"archives/{name}.zip", archive)
    put("library.bin", build_library())
    put("notices.txt", notices())
    for name in ("config.json", "model.safetensors"):
        put(f"model/{name}", (MODEL / name).read_bytes())
    for name in PYODIDE_FILES:
        assets.copy(PYODIDE / name, f"pyodide-{pyodide_version()}/{name}")
    for source in sorted((BROWSER / "src").rglob("*")):
        if source.is_file():
            digest.update(source.read_bytes())
    constants = {name: json.dumps(value) for name, value in pictures().items()}
    constants |= {"COURSE": json.dumps(exercises.course_version()), "CATALOGUE": exercises.catalogue()}
    constants |= {"ENGINE_MODULES": json.dumps(ENGINE_MODULES), "ENGINE_ARCHIVES": json.dumps(ENGINE)}
    constants["MODEL_BYTES"] = json.dumps((MODEL / "model.safetensors").stat().st_size)
    digest.update(json.dumps(constants).encode())
    _bundle(digest.hexdigest()[:12], constants)
    for path in sorted(BUNDLE.rglob("*")):
        if path.is_file():
            assets.copy(path, path.relative_to(BUNDLE).as_posix())
    assets.sweep()
    fragments.sweep()


def _lock() -> dict[str, object]:
    """Return Pyodide's lock file without its packages, of which the page loads none."""
    return {"info": json.loads((PYODIDE / "pyodide-lock.json").read_text("utf-8"))["info"], "packages": {}}


def esbuild_modules(entry: str, folder: Path, digest: str, *options: str) -> None:
    """Have esbuild bundle a module of `src/` into `folder`; `digest` goes into the addresses of what it fetches."""
    settings = {"BUILD": digest, "PYODIDE_VERSION": pyodide_version(), "PYODIDE_LOCK": _lock()}
    defined = [f"--define:{name}={json.dumps(value)}" for name, value in settings.items()]
    modules = ["--format=esm", "--target=es2022", *defined, f"--outdir={folder}"]
    find_node().run([*ESBUILD, entry, *modules, *options], cwd=BROWSER)


def _bundle(digest: str, constants: dict[str, str]) -> None:
    """Have esbuild write the page's modules, the worker and the styles into `BUNDLE`; `constants` are JSON by name."""
    shutil.rmtree(BUNDLE, ignore_errors=True)
    defined = (f"--define:{name}={value}" for name, value in constants.items())
    esbuild_modules("src/course.ts", BUNDLE, digest, "--splitting", *defined)
    esbuild_modules("src/worker.ts", BUNDLE, digest)
    styles = ["--loader:.woff2=file", "--asset-names=fonts/[name]", f"--outdir={BUNDLE}"]
    find_node().run([*ESBUILD, "src/course.css", *styles], cwd=BROWSER)


def main() -> int:
    if not PYODIDE.is_dir():
        print("the front end's packages are missing: run `make site` once", file=sys.stderr)
        return 2
    try:
        build()
    except subprocess.CalledProcessError as error:
        print(f"this did not work: {' '.join(error.cmd[1:3])}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
