"""Sources to rows: what a source is made of, how its files are opened, parsed and taken in."""
