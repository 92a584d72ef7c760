"""Judges: what is asked of a language model, how its replies are read, and what they come to."""
