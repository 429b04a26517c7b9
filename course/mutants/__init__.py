"""Wrong versions of the reference: what the checks must reject.

`catalogue` holds real mistakes, each with its source; `mechanical` makes small changes of every kind. Both show whether
the checks would notice. `python -m course.mutants` prints the score.
"""
