"""The parts of the report: what to show (`page`), how to write and draw it (`words`, `plots`)."""
