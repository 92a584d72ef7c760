"""Overlap of predictions with references: BLEU, chrF, ROUGE, METEOR."""
