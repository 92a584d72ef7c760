"""A table of names, ours -> theirs (`model.hub_names` says how to read one)."""

Names = dict[str, str | tuple[str, ...]]


def within(ours: str, theirs: str, names: Names) -> Names:
    """A table with a prefix on each side."""
    return {
        "=" * name.startswith("=") + ours + name.lstrip("="): (
            theirs + there if isinstance(there, str) else tuple(theirs + t for t in there)
        )
        for name, there in names.items()
    }
