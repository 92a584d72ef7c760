"""Training: one loop, one checkpoint format, one schedule module for all of it."""
