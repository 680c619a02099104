"""Keys as strangers may see them: as they are, or as digests that mean nothing outside this process."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any, Final

from ephemerals.errors import shown

__all__ = ["hashed_key", "key_text"]

_SECRET: Final = secrets.token_bytes(32)


def hashed_key(key: Any) -> str:
    """Return a keyed BLAKE2 digest of a key: equal for equal keys of one type, different in each process."""
    try:
        text = f"{type(key).__qualname__}:{key!r}"
    except Exception:  # noqa: BLE001 - a key's own text may raise anything, and must break nothing
        text = f"{type(key).__qualname__}:{hash(key)}"
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), key=_SECRET, digest_size=8).hexdigest()


def key_text(key: Any) -> str:
    """Return a key as text for one line of a log, whatever its class makes of that."""
    text = shown(key, str)
    return text if text.isprintable() else repr(text)
