"""Mixtures of sources: shares, the source of each sample, and how often each is seen."""
