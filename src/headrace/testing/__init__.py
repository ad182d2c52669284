"""Simulated hosts and conformance suites, shipped for users' own tests."""
