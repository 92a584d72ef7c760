"""Where a document went, in rows, shards, samples and models, and how it is taken out of them."""
