"""Tasks of lm-evaluation-harness: their YAML read, put to any model as it would, graded so too."""
