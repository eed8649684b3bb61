"""Help texts: the docstring under each field of a settings class, which the command line shows."""

import ast
import inspect
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from itertools import pairwise


def field_texts(kind: type) -> dict[str, str]:
    """The docstring of each field of a dataclass, from the nearest class that has one; OSError without a source."""
    texts: dict[str, str] = {}
    for parent in filter(is_dataclass, reversed(kind.__mro__)):
        texts |= _own_texts(parent)
    return texts


@cache
def _own_texts(kind: type) -> Mapping[str, str]:
    """Those that stand in the class itself, whose source is read once: all methods have some classes in common."""
    texts: dict[str, str] = {}
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    for statement, following in pairwise(definition.body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = inspect.cleandoc(text)
    return texts
