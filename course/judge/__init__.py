"""Judges a learner's answer: the same checks on the command line, in the browser page and under pytest.

The checks never touch the learner's objects. They hold remote handles (`remote`), whose every call travels as JSON
(`wire`) to an agent (`agent`) that runs beside the learner's code: in a child process (`process`) or, in the page, in
the same interpreter (`page`). Expected values stay on the checks' side. What happens is a list of events, and a report
(`report`) is a fold over them, so that a run that was killed can still be reported.
"""
