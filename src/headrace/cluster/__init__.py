"""The metadata store, the cached view of it, and what the controller decides."""
