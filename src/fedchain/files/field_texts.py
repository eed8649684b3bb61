"""Help texts: the docstring under each field of a settings class, which the command line shows."""

import ast
import inspect
from itertools import pairwise


def field_texts(kind: type) -> dict[str, str]:
    """The docstring under each field of a dataclass that has one."""
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    texts: dict[str, str] = {}
    for statement, following in pairwise(definition.body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = inspect.cleandoc(text)
    return texts
