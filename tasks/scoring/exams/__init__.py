"""Exams: tasks defined in YAML, put to any model, marked, and their figures."""
