"""WHERE: Ray, Prefect and MLflow sessions, DeepSpeed set-up, the artifact store, placement.

Knows nothing of language models; imports neither `tasks` nor `flows`.
"""
