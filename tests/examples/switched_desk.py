"""The desk with a translator that another process can switch off, and slow down."""

from __future__ import annotations

import os

from examples.translation_desk.app import create_app
from tests.examples.translators import Switched


def create():
    return create_app(Switched(os.environ["DESK_SWITCH"]))
