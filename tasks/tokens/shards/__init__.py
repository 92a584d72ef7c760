"""Stage `shards`: the text as memory-mapped tokens, and how they are read."""
