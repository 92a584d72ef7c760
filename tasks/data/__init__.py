"""Raw sources to clean text: read, filter, deduplicate, redact; every row accounted for."""
