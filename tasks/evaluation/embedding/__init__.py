"""Scores by trained models: embeddings compared."""
