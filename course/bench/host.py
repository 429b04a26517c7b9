"""Where a step's time goes on the host: the engine's seams are wrapped from outside, in a round that is not timed.

Scheduling, assembling a batch and reading results are the host's work; launching is what hands work to the device, and
waiting is for what the device has not finished. On a CPU, launching is the computing itself.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

KINDS = ("scheduling", "assembly", "launching", "waiting", "reading")
HOST = ("scheduling", "assembly", "reading")


class Shares:
    """Seconds by kind; where one wrapped call is inside another, its time is its own and not the outer one's."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds = dict.fromkeys(KINDS, 0.0)
        self._clock = clock
        self._inner = [0.0]

    @contextlib.contextmanager
    def counting(self, kind: str) -> Iterator[None]:
        start = self._clock()
        self._inner.append(0.0)
        try:
            yield
        finally:
            took = self._clock() - start
            self.seconds[kind] += took - self._inner.pop()
            self._inner[-1] += took

    def wrap(self, call: Callable[..., Any], kind: str, after: Callable[[], None] | None = None) -> Callable[..., Any]:
        """Return the call, counted as `kind`; `after` it, what waits for the device counts as waiting."""

        def wrapped(*arguments: Any, **options: Any) -> Any:
            with self.counting(kind):
                result = call(*arguments, **options)
            if after is not None:
                with self.counting("waiting"):
                    after()
            return result

        return wrapped

    def of(self, seconds: float) -> dict[str, float]:
        """Return the share of each kind in a round of `seconds`, and `host`, the sum of the host's own work."""
        shares = {kind: took / seconds for kind, took in self.seconds.items()}
        return {**shares, "host": sum(shares[kind] for kind in HOST)}


@contextlib.contextmanager
def watched(engine: Any, clock: Callable[[], float] = time.perf_counter) -> Iterator[Shares]:
    """Wrap the seams of an engine for as long as the block runs. `AttributeError` for one that it has not."""
    import solutions.engine as module

    shares = Shares(clock)
    with contextlib.ExitStack() as stack:

        def seam(owner: Any, name: str, kind: str, after: Callable[[], None] | None = None) -> None:
            own = vars(owner).get(name)  # an instance's own attribute is put back, a class's shows again
            setattr(owner, name, shares.wrap(getattr(owner, name), kind, after))
            stack.callback(lambda: delattr(owner, name) if own is None else setattr(owner, name, own))

        for name in ("schedule", "repeat", "free_finished"):
            seam(engine.scheduler, name, "scheduling")
        seam(engine, "take", "reading")
        if hasattr(engine, "decoder"):
            from solutions.fused_decode import Turn

            seam(engine, "_start", "assembly")  # what is left of it: the turn's entries are made
            seam(engine.decoder, "launch", "launching")
            seam(engine.prompts, "launch", "launching")
            seam(engine.prompts, "_flatten", "assembly")
            seam(engine, "_read", "reading")
            wait = Turn.wait
            setattr(Turn, "wait", shares.wrap(wait, "waiting"))  # noqa: B010 (a method is put in another's place)
            stack.callback(setattr, Turn, "wait", wait)
        else:
            seam(module, "build_batch", "assembly")
            seam(engine.model, "next_tokens", "launching", _waiter(engine.device))
            _time_reading(engine.model, shares)
            seam(engine, "run", "assembly")  # what is left of it: the batch's rows are made
        yield shares


def _time_reading(model: Any, shares: Shares) -> None:
    """Have what `next_tokens` returns count its `tolist` as reading. Undone with the seam that it is put on."""
    launch = model.next_tokens

    def launched(*arguments: Any) -> Any:
        return SimpleNamespace(tolist=shares.wrap(launch(*arguments).tolist, "reading"))

    model.next_tokens = launched


def _waiter(device: Any) -> Callable[[], None] | None:
    if device.type != "cuda":
        return None
    import torch

    return torch.cuda.synchronize  # type: ignore[no-any-return, unused-ignore]
