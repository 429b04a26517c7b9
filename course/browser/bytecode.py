"""Compiles Python sources to the bytecode of Pyodide's Python, which is not the bytecode of the Python that builds.

Compiling is most of what a page's Python does while it starts, so the build does it once. What was compiled last is
kept in `.cache/bytecode/`, by a digest of the sources, the compiler and Pyodide.
"""

import hashlib
import io
import json
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from course.browser.output import BROWSER, NODE_MODULES, ROOT
from course.setup.node import find_node

PYODIDE = NODE_MODULES / "pyodide"
CACHE = ROOT / ".cache" / "bytecode"
SCRIPT = BROWSER / "bytecode.mjs"
SOME_DAY = (1980, 1, 1, 0, 0, 0)  # the same files give the same zip


def pyodide_version() -> str:
    return str(json.loads((PYODIDE / "package.json").read_text("utf-8"))["version"])


def compile_sources(sources: Mapping[str, bytes], place: str, optimize: int = 0) -> dict[str, bytes]:
    """Return the `.pyc` of each source, by the source's name; tracebacks will name the code `place/name`.

    `optimize` is that of `compile`: 2 leaves out asserts and docstrings.

    `CalledProcessError` when a source does not compile.
    """
    given = pack(sources)
    settings = f"{pyodide_version()} {place} {optimize}\n".encode()
    digest = hashlib.sha256(settings + SCRIPT.read_bytes() + given).hexdigest()
    label = place.strip("/").replace("/", "-")
    kept = CACHE / f"{label}-{digest[:20]}.zip"
    if not kept.is_file():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            sources_zip, compiled_zip = Path(folder, "sources.zip"), Path(folder, "compiled.zip")
            sources_zip.write_bytes(given)
            arguments = (PYODIDE, place, optimize, sources_zip, compiled_zip)
            find_node().run(["node", str(SCRIPT), *map(str, arguments)])
            for earlier in CACHE.glob(f"{label}-*.zip"):
                earlier.unlink()
            compiled_zip.replace(kept)
    with zipfile.ZipFile(kept) as archive:
        return {name.removesuffix("c"): archive.read(name) for name in archive.namelist()}


def pack(files: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip of `files`; the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compresslevel=9) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, date_time=SOME_DAY)
            entry.compress_type = compression
            archive.writestr(entry, content)
    return buffer.getvalue()
