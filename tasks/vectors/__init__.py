"""Word vectors: one number for each word of the vocabulary, counted, or learnt by prediction."""
