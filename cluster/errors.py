"""Errors a user can mend: what failed, the value, what is allowed, the next command."""


class BadInput(ValueError):
    """A recipe, file or flag that cannot be used; the command exits with status 2."""


class StageFailed(RuntimeError):
    """A stage of a run failed; its own message has been shown, the command exits with status 1."""


class MissingExtra(BadInput):
    """An optional dependency is absent; the message is the command that installs it."""
