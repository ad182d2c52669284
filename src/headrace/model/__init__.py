"""The vocabulary: names, offsets, batches, topic configuration, errors. Imports nothing of headrace."""
