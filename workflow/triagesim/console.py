"""What every command does around its work: errors as one text on stderr, with the exit code of their kind."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from triagesim.errors import TriageSimError


def command(main: Callable[[], int | None]) -> NoReturn:
    """Run a command and exit: 0 or what it returns, or the error's own code with `error: …` on stderr."""
    try:
        code = main() or 0
    except TriageSimError as error:
        print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        code = 1
    sys.exit(code)
