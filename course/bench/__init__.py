"""The benchmark: systems that continue the same token numbers, one process each, measured in turn.

`workload` makes the prompts, `rounds` measures and refuses to compare what differs, `results` makes the record that is
written to a file, and the table that is made from it. Nothing here needs PyTorch: a system is whatever runs a round.
"""
