"""The whole engine in plain Python, as a page runs it: the shipped model, driven by the reader's own parts."""
