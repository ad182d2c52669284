"""One module for each API: its request and response, with readers and writers for every version."""
