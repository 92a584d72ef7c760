"""What the commands print: of runs, artifacts, models and text."""
