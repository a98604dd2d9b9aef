"""A small decoder-only transformer, annotated with `instrument` the way a user would.

Text goes in, tokens come out: a byte tokeniser, a data loader over the text of this repository, operators of
its own, a KV cache, sampling, and training where torch is installed. Start it with

    python examples/transformer --help
    instrument run examples/transformer
"""
