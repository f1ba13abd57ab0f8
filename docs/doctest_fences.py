"""For the reference: examples in docstrings are shown as code, which Markdown would take for quotations."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)>>> .*(?:\n\1\S.*|\n\1 .*)*", re.MULTILINE)


def fenced(text: str) -> str:
    """Every run of lines from a prompt to the next empty line as a block of code."""
    return EXAMPLE.sub(lambda m: f"{m[1]}```pycon\n{m[0]}\n{m[1]}```", text)


class DoctestFences(griffe.Extension):
    """Changes docstrings as they are read; those with a section of examples have their code already."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called with each module, class, function and attribute."""
        if obj.docstring is not None and "Examples:" not in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
