"""Named coordinators in web applications: FastAPI, Starlette, Litestar, and whatever else has an ASGI lifespan.

The lifespan and `get_registry` need no framework; the rest imports FastAPI or Starlette (extra `fastapi`) when called.
"""

from __future__ import annotations

from .dependency import FromRegistry
from .lifespan import EphemeralsLifespan, get_registry
from .refusals import install_refusals

__all__ = ["EphemeralsLifespan", "FromRegistry", "get_registry", "install_refusals"]
