"""headrace: a distributed message queue over one append-only log."""

__version__ = "0.1.0"
