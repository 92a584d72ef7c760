"""What is measured of a document, and the rules that keep or reject it."""
