"""The benchmark: systems that continue the same token numbers, one process each, measured in turn.

Two commands share it. `python practice/judge.py bench` answers a learner's question, how fast is mine? Two engines of
the same arithmetic, so every token has to be the same, and a part that fails is named. `python -m course.bench` makes
the whole table: many systems of many arithmetics, each of which may be absent or fail while the others go on, and whose
tokens are held against Hugging Face in float32 instead. `judge.py bench --systems all` is the same table.

`workload` makes the prompts, `rounds` measures and refuses to compare what differs, `results` makes the record that is
written to a file. Of the table, `systems` lists what there is, `process` talks to one system, `workers/` are the
systems themselves, `agreement` judges their tokens, `host` finds the host's share, `floor` says what memory allows,
`table` runs it all, `report` and `chart` show the record. `memory` is a command of its own, because it wants the
machine for itself.
Nothing in this process needs PyTorch, or touches a GPU.
"""
