"""Delivery to HTTP endpoints. Nothing is here yet."""
