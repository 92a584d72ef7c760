"""What Prometheus reads of a service."""

from tasks.serving.service import Service


def exposition(service: Service) -> str:
    """The figures in Prometheus' text format."""
    engine = service.engine
    gauges = {
        "rows": (len(engine.rows), "requests that are being answered"),
        "waiting": (len(engine.waiting), "requests that wait"),
        "cache_tokens": (sum(engine.slots.lengths), "tokens in the key-value caches"),
        "cache_capacity_tokens": (engine.capacity.tokens, "tokens for which there is room"),
    }
    lines = []
    for name, (value, about) in gauges.items():
        lines += [f"# HELP headrace_{name} {about}", f"# TYPE headrace_{name} gauge"]
        lines.append(f"headrace_{name} {value}")
    counters = {
        "prompt_tokens": (engine.read, "tokens of prompts that were read"),
        "generated_tokens": (engine.written, "tokens that were written"),
    }
    for name, (value, about) in counters.items():
        lines += [f"# HELP headrace_{name}_total {about}", f"# TYPE headrace_{name}_total counter"]
        lines.append(f"headrace_{name}_total {value}")
    lines += ["# HELP headrace_requests_total requests", "# TYPE headrace_requests_total counter"]
    lines += [f'headrace_requests_total{{endpoint="{k}"}} {n}' for k, n in service.ended.items()]
    return "\n".join(lines) + "\n"
