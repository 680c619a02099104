"""Show the examples in docstrings as code: what starts with `>>>` is to Markdown a quotation in a quotation."""

from __future__ import annotations

import doctest
from typing import Any

import griffe


class FencedExamples(griffe.Extension):
    """Put a fence around every example of a docstring that is loaded."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the examples of one object."""
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return a docstring with a fence around each paragraph of examples."""
    has_examples = doctest.DocTestParser().get_examples
    return "\n\n".join(f"```pycon\n{each}\n```" if has_examples(each) else each for each in text.split("\n\n"))
