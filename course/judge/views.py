"""What of an object a page can draw: its state after each call, as plain data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

WATCHED_BLOCKS = 16  # larger pools are not drawn block by block
LOOKS_AT = ("BlockPool.num_free", "BlockPool.ref_count")  # what a look calls, and a learner may have written


def view_of(class_name: str, value: Any, args: list[Any]) -> Callable[[], dict[str, Any]] | None:
    """Return a function that looks at `value`, made by a call with `args`; None where there is nothing to draw."""
    if class_name == "BlockPool" and args and isinstance(args[0], int) and args[0] <= WATCHED_BLOCKS:
        blocks = range(args[0])
        return lambda: {"num_free": value.num_free, "ref_counts": [value.ref_count(block) for block in blocks]}
    if class_name == "BlockTable":
        return lambda: {
            "block_size": value.block_size,
            "blocks": list(value.blocks),
            "num_tokens": value.num_tokens,
        }
    if class_name == "Sequence":
        # What is stored, and nothing that an answer derives from it: that may be what is still to be written.
        return lambda: {
            "num_prompt": value.num_prompt,
            "num_tokens": len(value.tokens) + value.num_unread,
            "num_computed": value.table.num_tokens,
            "num_blocks": len(value.table.blocks),
            "max_new_tokens": value.max_new_tokens,
            "ended": value.ended,
        }
    if class_name == "OnlineSoftmax":
        return lambda: {
            "maximum": _number(value.maximum),
            "total": _number(value.total),
            "accumulator": [_number(number) for number in value.accumulator],
        }
    if class_name == "Int8Cache":
        return lambda: {
            name: _numbers(getattr(value, name)) for name in ("keys", "values", "key_scales", "value_scales")
        }
    return None


def _numbers(value: Any) -> Any:
    """Return nested lists with every float as `_number` has it."""
    return [_numbers(item) for item in value] if isinstance(value, list | tuple) else _number(value)


def _number(value: Any) -> Any:
    """Return a float to ten digits, as calls show it, and -inf and NaN, which JSON does not know, in words.

    A whole number loses its point, as it does in a browser.
    """
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return str(value)
    rounded = float(f"{value:.10g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded
