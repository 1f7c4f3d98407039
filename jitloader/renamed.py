"""Names that are kept for a release after another took their place."""

import warnings


def renamed(old: str, new: str) -> None:
    """Warn whoever calls our caller by its old name."""
    message = f"{old} is called {new} now; the next release will not know the old name"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
