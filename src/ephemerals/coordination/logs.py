"""The one log of the core: what was dropped, skipped, refused or swallowed, without anybody's data."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

__all__ = ["log"]

_logger: Final = logging.getLogger("ephemerals")


def log(level: int, message: str, *arguments: object, exc_info: BaseException | None = None) -> None:
    """Log, and let nothing break if a handler or filter of the user raises."""
    with suppress(Exception):
        _logger.log(level, message, *arguments, exc_info=exc_info, stacklevel=2)
