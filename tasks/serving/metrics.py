"""What Prometheus reads of a service."""

from tasks.serving.service import Service


def exposition(service: Service) -> str:
    """The figures in Prometheus' text format."""
    engine, capacity = service.engine, service.engine.capacity.tokens
    figures = (
        ("rows", "gauge", len(engine.rows), "requests that are being answered"),
        ("waiting", "gauge", len(engine.waiting), "requests that wait"),
        ("cache_tokens", "gauge", sum(engine.slots.lengths), "tokens in the key-value caches"),
        ("cache_capacity_tokens", "gauge", capacity, "tokens for which there is room"),
        ("prompt_tokens_total", "counter", engine.read, "tokens of prompts that were read"),
        ("generated_tokens_total", "counter", engine.written, "tokens that were written"),
    )
    lines = []
    for name, kind, value, about in figures:
        lines += [f"# HELP headrace_{name} {about}", f"# TYPE headrace_{name} {kind}"]
        lines.append(f"headrace_{name} {value}")
    lines += ["# HELP headrace_requests_total requests", "# TYPE headrace_requests_total counter"]
    for (endpoint, status), count in service.ended.items():
        labels = f'endpoint="{endpoint}",status="{status}"'
        lines.append(f"headrace_requests_total{{{labels}}} {count}")
    return "\n".join(lines) + "\n"
