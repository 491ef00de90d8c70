"""Two exceptions and a warning category that the ``vitpos`` commands print in one line, without a traceback."""


class InputError(ValueError):
    """An invalid argument, option or file; the message gives the value and the remedy (exit code 2)."""


class RunError(RuntimeError):
    """A failure during a run; the message gives the cause and which results are kept (exit code 1)."""


class Notice(UserWarning):
    """Warning category for what a user should know, such as a changed plug-in file; commands print it as ``note: …``."""
