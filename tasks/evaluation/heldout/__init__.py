"""Stage `evaluate`: loss on held-out text, and the baseline to beat."""
