"""The engine made of the learner's parts.

`parts` says what an engine is made of and whose each part is; `worker` starts the child process that runs it and hears
what happens there. In the child, which has PyTorch, `child` serves the parent, `load` puts the parts together, `tasks`
runs them, and `watchdog` and `blame` name the part, the request and the step when one crashes or hangs.
"""
