"""Models and tokenizers that exist already, as first nodes of a run."""
