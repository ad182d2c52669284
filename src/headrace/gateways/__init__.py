"""Translation only: wire form in, one broker call, wire form out."""
