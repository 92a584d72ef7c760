"""Scores: held-out loss and baselines, overlap metrics, judges, agreement with people."""
