"""What of an object a page can draw: its state after each call, as plain data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WATCHED_BLOCKS = 16  # larger pools are not drawn block by block


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
    if class_name == "Int8Cache":
        return lambda: {name: list(getattr(value, name)) for name in ("keys", "values", "key_scales", "value_scales")}
    return None
