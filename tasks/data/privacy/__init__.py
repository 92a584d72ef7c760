"""Personal data and secrets: where they are in a text, and what takes their place."""
