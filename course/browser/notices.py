"""Gathers the licences of what the site ships from others."""

import json

from course.browser.output import BROWSER, NODE_MODULES

PYODIDE_NOTICE = """\
Pyodide {version}: Python, compiled to WebAssembly, which checks the exercises in the page.
Copyright the Pyodide contributors and Mozilla. Mozilla Public License, version 2.0 (text below).
The files in pyodide-{version}/ are unmodified. library.bin is Pyodide's standard library: compiled to bytecode, without
the modules that no exercise needs. The source of both is at https://github.com/pyodide/pyodide/tree/{version}
They contain CPython (Python Software Foundation License, https://docs.python.org/3/license.html)
and parts of Emscripten (MIT License, https://github.com/emscripten-core/emscripten/blob/main/LICENSE).
"""
# Packages that are in the bundles; those that only build them (esbuild, TypeScript) are not shipped.
SHIPPED = ("@codemirror/", "@fontsource-variable/", "@lezer/", "@marijn/", "crelt", "style-mod", "w3c-keyname")


def notices() -> str:
    """Return the text of `notices.txt`: every shipped package with its version and licence."""
    lock = json.loads((BROWSER / "package-lock.json").read_text("utf-8"))["packages"]
    names = sorted(path.removeprefix("node_modules/") for path in lock if path)
    parts = [_package(name, lock) for name in names if name.startswith(SHIPPED)]
    pyodide = PYODIDE_NOTICE.format(version=lock["node_modules/pyodide"]["version"])
    mozilla = (BROWSER / "licences" / "MPL-2.0.txt").read_text("utf-8")
    return ("\n" + "=" * 78 + "\n\n").join([pyodide, *parts, mozilla])


def _package(name: str, lock: dict[str, dict[str, str]]) -> str:
    entry = lock[f"node_modules/{name}"]
    folder = NODE_MODULES / name
    text = next((path.read_text("utf-8") for path in sorted(folder.glob("LICEN[CS]E*"))), "")
    return f"{name} {entry['version']} ({entry.get('license', 'see below')})\n\n{text}"
