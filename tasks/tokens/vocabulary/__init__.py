"""Stage `tokenizer`: a vocabulary of subwords over bytes, learnt from the text."""
