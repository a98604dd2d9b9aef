"""Exporters that come with the SDK, one per file; of it they use only :mod:`instrument.records`."""
