"""Judges your answers: python practice/judge.py (help lists what it can do)."""

# ruff: noqa: E402, UP031, UP036
# No newer syntax than Python 2 had in this file, so that an old Python says what is wrong and not where it stumbled.
import os
import sys

if sys.version_info < (3, 11):
    sys.stderr.write(
        "This course needs Python 3.11 or newer, and this is Python %d.%d (%s).\n"
        "Run the judge with a newer one, for example: python3.13 practice/judge.py\n"
        % (sys.version_info[0], sys.version_info[1], sys.executable)
    )
    sys.exit(2)

# The repository stands in the place of this folder, where your files would hide modules of the same name.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from course.judge.cli import main

sys.exit(main(sys.argv[1:]))
