"""What calls of the package raise."""


class PoseidonError(RuntimeError):
    """What went wrong, where, and what to do; `exit_code` is one of docs/errors.md."""

    def __init__(self, message: str, exit_code: int = 1):
        super().__init__(message)
        self.exit_code = exit_code


class ConfigError(PoseidonError):
    """An option, a model or an optimizer that can't work."""

    def __init__(self, message: str, exit_code: int = 2):
        super().__init__(message, exit_code)


class PeerLost(PoseidonError):
    """A process of the job died or fell silent; the message names it."""


class DeadlineExceeded(PoseidonError):
    """A wait took too long; the message names who is missing."""


class Rewound(Exception):
    """The job goes back to an iteration that this process has left, as it has lost another; Session.go_back is next."""
