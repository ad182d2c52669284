"""Composition root and configuration."""
