"""A model behind OpenAI's HTTP interface."""
