"""Turns an exercise into what a page holds without JavaScript, and into what the element needs to work."""

import ast
import hashlib
import json
import re
import textwrap
import tomllib

from course.browser.archive import exercise_archives
from course.browser.output import ROOT
from course.judge.exercise import Exercise, load_exercises
from course.judge.stub import exercise_solution, exercise_stub, symbol_sources

HINT_NAMES = ("the idea", "the place", "nearly the code")
WORDS = {"easy": "Easy", "medium": "Medium", "hard": "Hard"}


def course_version() -> str:
    """Return the version in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["version"])


def catalogue() -> str:
    """Return, as JSON, every exercise in course order with the page that it is on; `src/catalogue.ts` has its shape."""
    pages = {
        name: page for page, text in _pages().items() for name in re.findall(r"course-exercise\[name='(.+?)'\]", text)
    }
    entries = [
        {"id": each.id, "title": each.title, "page": pages[each.id]} for each in load_exercises() if each.id in pages
    ]
    return json.dumps(entries, ensure_ascii=False)


def _pages() -> dict[str, str]:
    """Return the text of every page, by its address from the site's root."""
    docs = ROOT / "docs"
    return {
        f"{path.relative_to(docs).with_suffix('').as_posix()}/": path.read_text("utf-8") for path in docs.rglob("*.md")
    }


def fragment(exercise: Exercise) -> str:
    """Return the Markdown that `pymdownx.snippets` puts inside `<course-exercise>`."""
    count = len(exercise.promises)
    parts = [
        f"### Exercise: {exercise.title} {{ #{exercise.id} }}",
        f"{WORDS[exercise.difficulty]} · `{exercise.file}` · {count} {'check' if count == 1 else 'checks'}"
        f"{'' if exercise.runs_in_page else ' · needs PyTorch, so it is judged in a clone'}\n"
        "{: .exercise-meta }",
        exercise.task,
        _block("div", "exercise-stub", _without_javascript(exercise)),
        *(
            _fold("exercise-hint", f"Hint {number}: {name}", hint)
            for number, (name, hint) in enumerate(zip(HINT_NAMES, exercise.hints, strict=True), 1)
        ),
        _fold("exercise-promises", "What is checked", "\n".join(f"1. {promise}" for _, promise in exercise.promises)),
    ]
    return "\n\n".join(parts) + "\n"


def data(exercise: Exercise) -> str:
    """Return the JSON that the element fetches; `src/exercise.ts` gives its shape."""
    stub = exercise_stub(exercise.id)
    fields = {
        "id": exercise.id,
        "title": exercise.title,
        "course": course_version(),
        "difficulty": exercise.difficulty,
        "file": exercise.file,
        "time_limit": exercise.time_limit,
        "runs_in_page": exercise.runs_in_page,
        "archives": exercise_archives(exercise),
        "stub": stub,
        "stub_hash": hashlib.sha256(stub.encode()).hexdigest()[:16],
        "promises": exercise.promises,
    }
    return json.dumps(fields, ensure_ascii=False)


def reference(exercise: Exercise) -> str:
    """Return the JSON that the element fetches when the reference is asked for; `src/reference.ts` gives its shape.

    It holds what the stub has not: the exercise's symbols, and the helpers and imports that they need. Docstrings are
    left out, because the stub has them.
    """
    solution, stub = exercise_solution(exercise.id), exercise_stub(exercise.id)
    known = symbol_sources(stub)
    parts = [
        [symbol, _without_docstring(source)]
        for symbol, source in symbol_sources(solution).items()
        if known.get(symbol) != source
    ]
    imports = [line for line in _imports(solution) if line not in _imports(stub)]
    if imports:
        parts.insert(0, ["imports", "\n".join(imports)])
    return json.dumps({"parts": parts}, ensure_ascii=False)


def _imports(source: str) -> list[str]:
    return [ast.unparse(node) for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom)]


def _without_docstring(function: str) -> str:
    text = textwrap.dedent(function).rstrip("\n")
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    if ast.get_docstring(node) is None:
        return text
    lines = text.split("\n")
    del lines[node.body[0].lineno - 1 : node.body[0].end_lineno]
    return "\n".join(lines)


def _without_javascript(exercise: Exercise) -> str:
    stub = exercise_stub(exercise.id).rstrip("\n")
    return (
        f"````python\n{stub}\n````\n\n"
        f"The editor of this page needs JavaScript. In a clone of the course, write your answer in `{exercise.file}` "
        f"and run `python practice/judge.py check {exercise.id}`."
    )


def _block(tag: str, css_class: str, inside: str) -> str:
    return f'<{tag} class="{css_class}" markdown="1">\n\n{inside}\n\n</{tag}>'


def _fold(css_class: str, summary: str, inside: str) -> str:
    return _block("details", css_class, f"<summary>{summary}</summary>\n\n{inside}")
