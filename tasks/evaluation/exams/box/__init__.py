"""What runs code that a model wrote: the box, its walls, and the wire between it and the tests."""
