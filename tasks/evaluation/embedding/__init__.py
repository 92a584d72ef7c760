"""Scores by trained models: embeddings compared, and metrics fitted to human ratings."""
