"""What keeps a launcher from starting; each is one sentence that says what to do."""


class UsageError(Exception):
    """The command makes no sense; the sentence says what to change."""


class UnusableError(Exception):
    """The command makes sense, and this machine cannot do it; the sentence says what to do."""


class ConflictError(Exception):
    """Another run has what this one wants; the sentence says which, and what to do."""
