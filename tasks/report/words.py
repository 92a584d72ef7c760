"""How the report writes numbers, durations, sizes and the names of metrics."""

LABELS = {
    "accuracy": "accuracy",
    "accuracy_majority": "accuracy of the majority class",
    "bits_per_byte": "bits per byte",
    "bits_per_predicted_byte": "bits per byte of the text predicted",
    "bits_per_byte_witten_bell": "bits per byte, Witten-Bell model",
    "bytes_per_token": "bytes per token",
    "eod": "end-of-document id",
    "fertility": "tokens per word",
    "flops": "floating-point operations",
    "flops_per_token": "floating-point operations per token",
    "heldout_loss": "held-out loss, nats per target",
    "heldout_accuracy": "held-out targets predicted right",
    "unigram_loss": "the same of a unigram model",
    "unigram_accuracy": "the same of a unigram model's first guess",
    "macro_f1": "macro F1",
    "params": "parameters",
    "params_non_embedding": "parameters without embeddings",
    "mfu": "model FLOPs utilisation",
    "tokens_per_second": "tokens per second",
    "flops_per_second": "FLOP per second",
    "train_loss": "training loss of the last steps",
    "train_seconds": "seconds of training",
    "vocab_size": "vocabulary",
    "vocabulary_use": "share of the vocabulary that occurs",
}
# Words that the plain rule, underscores to spaces, would spoil.
SPELLED = {
    "rouge": "ROUGE-",
    "bleu": "BLEU",
    "chrf": "chrF",
    "meteor": "METEOR",
    "qag": "QAG",
    "geval": "G-Eval",
    "heldout": "held-out",
}
TRAINED = (
    *("pretrain", "classify", "regress", "label", "extract", "translate", "summarise"),
    *("instruct", "prefer", "distill"),
)
"""Stages whose result is a trained model."""
SCALES = (("M", 1e6), ("G", 1e9), ("T", 1e12))


def is_cost(key: str) -> bool:
    """Whether a metric tells what was spent rather than what was found: it differs from machine to
    machine, and from one time to the next.
    """
    return key.endswith(("seconds", "_per_second", "memory_bytes")) or key == "mfu"


def label(key: str) -> str:
    """A metric's key in words."""
    if key in LABELS:
        return LABELS[key]
    words = key.replace("_", " ")
    for plain, spelled in SPELLED.items():
        words = words.replace(plain, spelled)
    return words


def number(value: float | int | str | None, digits: int = 4) -> str:
    """A figure with four significant digits; counts below a million are written out."""
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e15):
        return count(int(value))
    if abs(value) >= 1e6 or 0 < abs(value) < 1e-3:
        return scientific(value)
    return f"{value:,.{digits}g}" if abs(value) < 10**digits else f"{value:,.0f}"


def count(value: int) -> str:
    """12,345 or 1.23 M."""
    if abs(value) < 1e6:
        return f"{value:,}"
    for unit, size in SCALES:
        if abs(value) < 999.5 * size:  # three digits of more are the next unit's
            return f"{value / size:.3g} {unit}"
    return scientific(float(value))


def scientific(value: float, digits: int = 2) -> str:
    """1.02 × 10⁻³."""
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if mantissa == "1" else f"{mantissa} × 10{raised}"


def signed_percent(value: float) -> str:
    """+1.3 % or −0.8 %."""
    return f"{100 * value:+.1f} %".replace("-", "−")


def duration(seconds: float | None) -> str:
    """0.8 s, 12 s, 3 min 20 s or 2 h 5 min."""
    if seconds is None:
        return "–"
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(value: float | None) -> str:
    """Bytes in powers of 1024."""
    if value is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError
