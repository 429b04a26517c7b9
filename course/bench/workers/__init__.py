"""The systems, one file each, with a class `System` that `serve.py` makes and asks.

They run in processes of their own, by path: `serve.py` and a peer's file import the standard library and the peer
alone, because they run in the interpreter that has the peer.
"""
