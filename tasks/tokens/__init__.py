"""Clean text to batches: tokenizer, memory-mapped token shards, and the loader of their samples."""
