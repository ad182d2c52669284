"""The HTTP server that every HTTP route stands on; it knows no route."""
