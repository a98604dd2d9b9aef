"""A tokeniser without a vocabulary file: one token a byte, and three special ones."""

from collections.abc import Iterable

BEGIN = 256
END = 257
PAD = 258
VOCABULARY = 259


def encode(text: str, *, begin: bool = False, end: bool = False) -> list[int]:
    """The UTF-8 bytes of `text`, with the special tokens asked for around them."""
    tokens = list(text.encode("utf-8", "surrogateescape"))
    return [BEGIN] * begin + tokens + [END] * end


def decode(tokens: Iterable[int]) -> str:
    """The text of `tokens`; special tokens are skipped.

    Bytes that are not UTF-8 (a model is free to produce them) become surrogates, so `encode` gives back the
    same bytes; print the text with `show`.
    """
    return bytes(token for token in tokens if token < BEGIN).decode("utf-8", "surrogateescape")


def show(text: str) -> str:
    """`text` on one line and safe to print."""
    printable = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return printable.replace("\n", "⏎").replace("\t", " ")
