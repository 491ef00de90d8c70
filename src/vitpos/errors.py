"""The two ways in which a command may end badly without being a bug of ours."""


class UserError(ValueError):
    """What was asked for is wrong; the message names the value and the remedy (exit code 2)."""


class WorkError(RuntimeError):
    """Something failed while working; the message says what and what is kept (exit code 1)."""
