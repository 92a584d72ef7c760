"""A model at work for others: behind OpenAI's HTTP interface, and on the rows of a file."""
