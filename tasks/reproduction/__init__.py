"""Published laws put to the test: their runs refitted, and their claims held against own sweeps."""
