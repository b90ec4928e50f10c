"""What every command does around its work: errors as one text on stderr, with the exit code of their kind."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from triagesim.errors import StopRun, TriageSimError
from triagesim.governance import redact
from triagesim.temporaries import FULL


def command(main: Callable[[], int | None]) -> NoReturn:
    """Run a command and exit: 0 or what it returns, or the error's own code with `error: …` on stderr."""
    write_anywhere()
    try:
        code = main() or 0
    except TriageSimError as error:
        print(f"error: {redact(str(error))}", file=sys.stderr)
        code = error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        code = 1
    except OSError as error:
        if error.filename is None and error.errno not in FULL:
            raise
        print(f"error: {error.filename or 'a file'}: {error.strerror}", file=sys.stderr)
        code = StopRun.exit_code if error.errno in FULL else TriageSimError.exit_code
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    sys.exit(code)


def write_anywhere() -> None:
    """Show `?` for what the terminal has no sign for, as stderr does without being told: our texts hold ° and –."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
