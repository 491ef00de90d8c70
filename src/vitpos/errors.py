"""The exceptions and the warning that commands print in one line, without a traceback."""


class InputError(ValueError):
    """An invalid argument, option or file; the message gives the value and the remedy (exit code 2)."""


class RunError(RuntimeError):
    """A failure during a run; the message gives the cause and what is kept (exit code 1)."""


class Notice(UserWarning):
    """An assumption or a change that the user should know of; commands print it as a note."""
