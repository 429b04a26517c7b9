"""Text and token numbers: bytes for the model that ships with the course, the published tokenizer for others."""

from __future__ import annotations

from typing import Any


class ByteTokenizer:
    """One token a byte of UTF-8: a vocabulary of 256, without an end-of-sequence token."""

    eos_token_id: int | None = None

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: list[int]) -> str:
        """Return the text; bytes that are no whole character (a stream cut in the middle) become U+FFFD."""
        return bytes(tokens).decode(errors="replace")


def load_tokenizer(name: str, vocab_size: int) -> Any:
    """Return the tokenizer of a model, by the folder or hub name that `transformers` accepts."""
    if vocab_size == 256:
        return ByteTokenizer()
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name)
