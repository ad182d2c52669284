"""Options of sources and sinks, checked before anything runs."""
