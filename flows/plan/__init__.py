"""A run before it runs: its stages, what is cached, what it takes."""
