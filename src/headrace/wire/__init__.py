"""Bytes to values and back. Nothing here reads a socket, a clock or a file."""
