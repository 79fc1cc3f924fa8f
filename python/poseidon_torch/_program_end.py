"""How the program ends, as the other workers and whoever has started it are to hear of it."""

import os
import sys
import threading
from typing import Optional

# What ends a loop or a generator is raised where nothing has failed.
_NO_FAILURES = (StopIteration, StopAsyncIteration, GeneratorExit)
_INTERRUPTED = 130  # docs/errors.md


def failure_of(error: Optional[BaseException]) -> Optional[str]:
    """What others are told where `error` ends a program; None if nothing has failed."""
    if error is None or isinstance(error, _NO_FAILURES):
        return None
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return None
        # Who logs an exception and then exits has failed by that.
        return failure_of(error.__context__) or f"SystemExit: {error.code}"
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def exit_code_of(error: BaseException) -> int:
    """That of a program which `error` ends."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", 1)


class EndNotes:
    """Notes an exception that ends the program, and sys.exit with another code than 0, from now on."""

    def __init__(self):
        self.failure: Optional[str] = None
        self._exit_code = 0  # of the last exit that was noted
        self._hook, self._exit = sys.excepthook, sys.exit
        sys.excepthook, sys.exit = self._on_exception, self._on_exit

    def _on_exception(self, kind, value, traceback) -> None:
        self.failure = failure_of(value)
        self._hook(kind, value, traceback)

    def _on_exit(self, status=None, /) -> None:
        try:
            self._exit(status)
        except SystemExit as error:
            if (
                threading.current_thread() is threading.main_thread()
            ):  # elsewhere it ends the thread
                self._note_exit(error)
            raise

    def _note_exit(self, error: SystemExit) -> None:
        cause, code = failure_of(error.__context__), exit_code_of(error)
        # torch.multiprocessing's processes exit twice: where they handle the exception, and then with that code.
        is_second = code != 0 and code == self._exit_code and cause is None
        if not is_second:
            self.failure = failure_of(error)
        self._exit_code = code


class LateExit:
    """Ends the process with `code` when the interpreter lets go of its last objects, which is after all that atexit
    calls: Python itself ignores what is raised there, and ends with 0."""

    def __init__(self, code: int):
        # Modules may be empty by then.
        self._code, self._exit = code, os._exit  # pylint: disable=protected-access

    def __del__(self):
        self._exit(self._code)


def report_late(error: BaseException) -> Optional[LateExit]:
    """At exit: says on stderr what Python would say if `error` ended the program. What is returned is to be kept."""
    if not isinstance(error, SystemExit):
        sys.excepthook(type(error), error, error.__traceback__)
    code = exit_code_of(error)
    return LateExit(code) if code != 0 else None
