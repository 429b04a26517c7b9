"""Makes the standard library that the page's Python starts with: as bytecode, without what no answer needs.

Docstrings and asserts are left out of it too, as by `python -OO`; an answer keeps its own.

It is one zip, stored and then compressed as a whole, which comes out smaller than a zip of compressed files. The page
decompresses it itself, because many hosts send an archive as it is.
"""

import gzip
import zipfile
from pathlib import PurePosixPath

from course.browser.bytecode import PYODIDE, compile_sources, pack

# An import of these says that there is no such module. Everything else of Pyodide's standard library is there.
LEFT_OUT = frozenset(
    """
    __hello__ __phello__ _py_abc _pydatetime _pyio _pyrepl _sysconfigdata__emscripten_wasm32-emscripten antigravity
    argparse bdb cProfile cmd code colorsys compileall concurrent/interpreters configparser ctypes difflib doctest
    email filecmp fileinput ftplib getopt getpass gettext html http imaplib importlib/metadata importlib/resources
    ipaddress mailbox mimetypes modulefinder multiprocessing netrc nturl2path optparse pdb pickletools plistlib poplib
    profile pstats pty py_compile pyclbr pydoc pyodide/http quopri rlcompleter runpy sched shelve site-packages
    smtplib socketserver sqlite3 sre_compile sre_constants sre_parse stringprep symtable tabnanny tarfile this trace
    tty unittest urllib wave webbrowser wsgiref xml xmlrpc zipapp zoneinfo
    """.split()  # noqa: SIM905 — one name a line would fill the screen
)
# Of the encodings, those that text is in today, and the one that names in a zip are in.
ENCODINGS = frozenset(
    """
    __init__ _win_cp_codecs aliases ascii charmap cp1252 cp437 iso8859_1 latin_1 raw_unicode_escape unicode_escape
    utf_16 utf_16_be utf_16_le utf_32 utf_32_be utf_32_le utf_8 utf_8_sig
    """.split()  # noqa: SIM905 — one name a line would fill the screen
)


def is_kept(name: str) -> bool:
    """Return whether the page's library has the module with the path `name`."""
    path = PurePosixPath(name.removesuffix(".py"))
    if path.parts[0] == "encodings":
        return path.name in ENCODINGS
    return LEFT_OUT.isdisjoint(map(str, (path, *path.parents)))


def build_library() -> bytes:
    """Return the library as a gzip of a zip of `.pyc` files."""
    with zipfile.ZipFile(PYODIDE / "python_stdlib.zip") as stock:
        sources = {name: stock.read(name) for name in stock.namelist() if name.endswith(".py") and is_kept(name)}
    compiled = compile_sources(sources, "/lib/python314.zip", optimize=2)
    return gzip.compress(pack({f"{name}c": bytecode for name, bytecode in compiled.items()}), compresslevel=9, mtime=0)
