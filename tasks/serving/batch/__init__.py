"""Batch inference: a file of rows, each answered by a model, every one accounted for."""
