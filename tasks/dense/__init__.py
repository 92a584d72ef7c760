"""Stage `dense`: a feed-forward network that learns from a text's features, by likelihood."""
