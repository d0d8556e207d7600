"""Countless: a global count over many machines that knows how wrong it can be."""

__version__ = "0.1.0"
