"""What the editor offers after a dot or in an import: public names of the standard library, written by the build.

A table and a look at the text, because the alternative costs too much for exercises this short: Jedi (0.19.2, with
parso) is 1.68 MB more to fetch, and in Pyodide its import and first completion take three quarters of the time that the
whole runtime takes to start, in the worker that checks wait for. The table is there before Python is, or without it.
"""

import collections
import collections.abc
import importlib
import json
import random

MODULES = (
    *("abc", "bisect", "collections", "collections.abc", "contextlib", "copy", "dataclasses", "enum", "functools"),
    *("heapq", "itertools", "json", "math", "operator", "random", "re", "statistics", "string", "sys", "time", "types"),
    "typing",
)
TYPES: tuple[type, ...] = (
    *(list, dict, set, frozenset, tuple, str, bytes, bytearray, int, float, range),
    *(collections.deque, collections.Counter, collections.defaultdict, collections.OrderedDict, random.Random),
    *(collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Mapping),
    *(collections.abc.MutableMapping, collections.abc.Set),
)


def completions() -> str:
    """Return the table as JSON; `src/completion.ts` has its shape."""
    modules = {name: _public(importlib.import_module(name)) for name in MODULES}
    types = {each.__name__: _public(each) for each in TYPES}
    return json.dumps({"modules": modules, "types": types}, separators=(",", ":"))


def _public(thing: object) -> list[str]:
    names = getattr(thing, "__all__", None) or dir(thing)
    return sorted(name for name in names if not name.startswith("_"))
