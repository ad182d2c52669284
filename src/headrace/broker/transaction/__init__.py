"""The coordinator of transactions: the fold over the internal topic, and what tells everybody how one ended."""
