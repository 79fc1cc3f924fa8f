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


class Left(SystemExit):
    """This worker's part is over, and nothing has failed: it has left the job, as was asked for, or it was a spare that
    the job never needed. A program that does not catch it ends, with code 0; `message` says why."""

    def __init__(self, message: str):
        super().__init__(0)
        self.message = message


def called_within_a_call() -> PoseidonError:
    """Of what a signal's handler calls, which Python runs in the midst of a call of the program's."""
    return PoseidonError(
        "called by a signal's handler while another call is under way; let the handler set a flag, and act on it "
        "between iterations"
    )


def called_within_an_update() -> PoseidonError:
    """Of what reads or writes parameters while layers get the last step, as who saves a model would find a part of it."""
    return PoseidonError(
        "called while layers are updated, as by a signal's handler, a hook of all optimizers' steps or another thread; do "
        "that between iterations"
    )


def error_of(message: str, exit_code: int) -> PoseidonError:
    """The error of a code of docs/errors.md, of its class."""
    classes = {2: ConfigError, 3: PeerLost, 4: DeadlineExceeded}
    return classes.get(exit_code, PoseidonError)(message, exit_code)


class Rewound(Exception):
    """The job goes back to an iteration that this process has left, as it has lost another; Session.go_back is next."""
