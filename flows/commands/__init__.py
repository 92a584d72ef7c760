"""The commands of `headrace`, by subject; each imports what it needs when it is called."""
