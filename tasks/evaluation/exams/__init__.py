"""Exams: tasks defined in YAML, put to any model, graded, and their figures."""
