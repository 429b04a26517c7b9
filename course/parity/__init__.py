"""Holds the engine against Hugging Face's GPT-2, layer by layer and head by head.

`python -m course.parity` runs it; `record` collects what both compute, `diagnose` names the first difference and its
likely cause, `compare` draws up the whole comparison.
"""
