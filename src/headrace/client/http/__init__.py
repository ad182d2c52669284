"""HTTP/1.1 as a client: connections, a pool of them, calls with a deadline."""
