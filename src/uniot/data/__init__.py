"""Samples in: arrays, files of embeddings, paired batches, the demo's digits."""
