"""Text made by a model from documents: rephrased, as questions, as instructions, or as grades."""
