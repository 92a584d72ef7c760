"""Documents that hold parts of an evaluation set, and the items they hold."""
