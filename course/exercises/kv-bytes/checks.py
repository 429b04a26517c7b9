"""What `kv-bytes` promises."""

from typing import Any

from course.judge.expect import expect


def counts_key_and_value(solution: Any) -> None:
    """One layer, one head, one number of one byte: a token takes 2 bytes, one for its key and one for its value.

    Attention needs both: the key to weigh a token, the value to read it.
    """
    expect(solution.kv_bytes_per_token(1, 1, 1, 1), 2)


def counts_every_layer_head_and_number(solution: Any) -> None:
    """Layers, KV heads, the head size and the bytes of a number each multiply the size.

    Leave one out and the memory plan is off by that factor.
    """
    expect(solution.kv_bytes_per_token(2, 1, 1, 1), 4)
    expect(solution.kv_bytes_per_token(1, 3, 1, 1), 6)
    expect(solution.kv_bytes_per_token(1, 1, 5, 1), 10)
    expect(solution.kv_bytes_per_token(1, 1, 1, 7), 14)


def matches_gpt2_small(solution: Any) -> None:
    """GPT-2 small in fp16 (12 layers, 12 heads of 64) takes 36,864 bytes a token.

    So a full context of 1,024 tokens takes 36 MiB, for a model of 237 MiB.
    """
    expect(solution.kv_bytes_per_token(12, 12, 64, 2), 36_864)


def matches_qwen(solution: Any) -> None:
    """Qwen2.5-7B in bf16 (28 layers, 4 KV heads of 128) takes 57,344 bytes a token: 56 KiB.

    Its 28 query heads share 4 KV heads. Without that it would be seven times as much.
    """
    expect(solution.kv_bytes_per_token(28, 4, 128, 2), 57_344)
