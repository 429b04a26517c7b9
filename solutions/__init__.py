"""The reference engine, one small module a part.

Modules do not import each other: each part is handed what it needs, so that a learner's part can stand in for any one.
"""
