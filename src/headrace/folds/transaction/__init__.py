"""Transactions: which producer has which open, and how far each is on its way to its end."""
