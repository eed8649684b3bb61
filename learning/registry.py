"""Names of the learning methods, and how a name and its hyper-parameters become a method.

Importing this module is cheap: a method's own module is imported when the method is built, and methods of other
packages are only looked up when a method is asked for.
"""

import importlib
import importlib.machinery
import importlib.util
import json
import math
import os
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType, MemberDescriptorType, ModuleType
from typing import TYPE_CHECKING, Any

from fedchain.learning.exceptions import (
    OWN_CODE_ERRORS,
    ConfigurationError,
    UnknownName,
    asking,
    is_own_code,
    one_line,
    raise_refusal,
)

if TYPE_CHECKING:
    from fedchain.learning.method import Method
    from fedchain.learning.models.model_info import ModelInfo

MODULES_VARIABLE = "FEDCHAIN_MODULES"
"""Variable of the environment: a folder whose modules can be imported, behind all others."""

HyperparameterValue = bool | int | float | str
"""Types of hyper-parameters: values that a configuration file and the genesis document can hold."""

_TYPES = (bool, int, float, str)

METHODS: Mapping[str, str] = MappingProxyType(
    {
        "blade-fl": "fedchain.learning.methods.blade_fl:BladeFl",
        "demlearn": "fedchain.learning.methods.demlearn:DemLearn",
        "dfpl": "fedchain.learning.methods.dfpl:Dfpl",
        "fedadam": "fedchain.learning.methods.fedadam:FedAdam",
        "fedavg": "fedchain.learning.methods.fedavg:FedAvg",
        "fedcurv": "fedchain.learning.methods.fedcurv:FedCurv",
        "feddkc": "fedchain.learning.methods.feddkc:FedDkc",
        "fededs": "fedchain.learning.methods.fededs:FedEds",
        "fedgkt": "fedchain.learning.methods.fedgkt:FedGkt",
        "fedict": "fedchain.learning.methods.fedict:FedIct",
        "fedintr": "fedchain.learning.methods.fedintr:FedIntR",
        "fednova": "fedchain.learning.methods.fednova:FedNova",
        "fedph": "fedchain.learning.methods.fedph:FedPh",
        "fedproc": "fedchain.learning.methods.fedproc:FedProc",
        "fedproto": "fedchain.learning.methods.fedproto:FedProto",
        "fedprox": "fedchain.learning.methods.fedprox:FedProx",
        "fedreg": "fedchain.learning.methods.fedreg:FedReg",
        "moon": "fedchain.learning.methods.moon:Moon",
        "mtfl": "fedchain.learning.methods.mtfl:Mtfl",
        "pfedme": "fedchain.learning.methods.pfedme:PFedMe",
        "scaffold": "fedchain.learning.methods.scaffold:Scaffold",
        "sgd": "fedchain.learning.methods.sgd:Sgd",
        "solo": "fedchain.learning.methods.solo:Solo",
        "swim": "fedchain.learning.methods.swim:Swim",
    }
)
"""Registered name of each built-in method, and where its class is: 'module:Class'."""

ENTRY_POINTS = "fedchain.methods"
"""Group of entry points with which an installed package gives its methods names."""


NOT_OF_ALL: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("compression", "compression_k", "error_decay"), "it posts no parameters of a common model")
)
"""Hyper-parameters that one looks for in every method, and the reason for which some have none."""

HYPERPARAMETER = "hyper-parameter of"
"""Beginning of the kind of an unknown hyper-parameter, before the method's name."""

FILE_SUFFIX = ".py"
"""Suffix of a file with Python code."""


def build_method(name: str, hyperparameters: Mapping[str, HyperparameterValue]) -> "Method":
    """Import the method and build it with checked hyper-parameters.

    Raises `ConfigurationError` for an unknown method, an unknown hyper-parameter, or a value of the wrong
    type or outside its range.
    """
    method_class = load_method(name)
    known = _hyperparameters(method_class)
    checked: dict[str, Any] = {}
    for parameter, value in hyperparameters.items():
        if parameter not in known and parameter in NOT_OF_ALL:
            raise ConfigurationError(f"{name} has no {parameter}: {NOT_OF_ALL[parameter]}")
        if parameter not in known:
            raise UnknownName(f"{HYPERPARAMETER} {name}", parameter, known)
        checked[parameter] = _checked(f"{name}.{parameter}", value, known[parameter])
    try:
        method = method_class(**checked)
    except TypeError as error:  # it lacks a part of the interface
        raise ConfigurationError(f"method {name}: {one_line(error)}") from error
    except OWN_CODE_ERRORS as error:
        raise_refusal(error, f"method {name}", method_class)
    _validate_fields(name, method)
    return method


def validate_model(method: "Method", info: "ModelInfo") -> None:
    """Raise `ConfigurationError` for a model that the method cannot work with, whatever a user's own one raises."""
    with asking("validate_model", type(method)):
        method.validate_model(info)


def hyperparameter_names(method_class: "type[Method]") -> tuple[str, ...]:
    """Return the names of a method's hyper-parameters."""
    return tuple(_hyperparameters(method_class))


def _hyperparameters(method_class: "type[Method]") -> Mapping[str, Any]:
    """Return the type of each field."""
    hints = _hints(method_class)
    return MappingProxyType({field.name: hints[field.name] for field in fields(method_class)})


@cache
def _hints(method_class: "type[Method]") -> Mapping[str, Any]:
    """Return the type of all that a class annotates. Evaluating it takes milliseconds; an experiment has hundreds of
    runs.
    """
    return MappingProxyType(typing.get_type_hints(method_class))


def load_method(name: str) -> "type[Method]":
    """Return the class behind a registered name or behind 'module:Class'."""
    module_name, _, class_name = locate_method(name).partition(":")
    module = import_module(f"method {name}", module_name)

    from fedchain.learning.method import Method

    found = getattr(module, class_name, None)
    if found is None and module_name == "__main__":
        raise ConfigurationError(
            f"method {name} was defined in a notebook or a shell, and is found nowhere else: go on there, with "
            f"fedchain.simulate({class_name}, …), or put the class in a file and name it FILE.py:{class_name}"
        )
    if not (isinstance(found, type) and issubclass(found, Method)):
        methods = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, Method)]
        raise UnknownName(f"method class in {module_name}", class_name, methods)
    return found


def name_method(method: "str | type[Method] | Method") -> tuple[str, dict[str, HyperparameterValue]]:
    """Return the name under which a method is found again, and the hyper-parameters of an instance that differ from the
    defaults. For a class of the script that runs, the name is 'FILE.py:Class', with the file's whole path.

    Raises `ConfigurationError` for a class that no import path leads to.
    """
    if isinstance(method, str):
        return method, {}
    from fedchain.learning.method import Method

    kind = method if isinstance(method, type) else type(method)
    if not issubclass(kind, Method):
        raise ConfigurationError(f"method is {method!r}, it must be a name, or a class or an instance of Method")
    place = f"{kind.__module__}:{kind.__qualname__}"
    if not is_import_path(place) or getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is not kind:
        raise ConfigurationError(f"method {place} must stand at the top level of a module, or of a notebook")
    name = next((known for known, where in METHODS.items() if where == place), place)
    if kind.__module__ == "__main__" and (script := running_script()) is not None:
        name = f"{script}:{kind.__qualname__}"
    if isinstance(method, type):
        return name, {}
    _validate_fields(place, method)
    values = {field.name: getattr(method, field.name) for field in fields(method)}
    return name, {field.name: values[field.name] for field in fields(method) if values[field.name] != field.default}


def agreed_name(name: str) -> str:
    """Return a method's name as a genesis document holds it: the class of a file, 'FILE.py:Class', is 'module:Class'.

    The file is imported, and the module is called as it would be if its folder were the current one: no path of this
    machine gets into a document, and no document makes anybody run a file of its choice. Raises `ConfigurationError`.
    """
    if not is_file_path(name):
        return name
    file_name, _, class_name = name.rpartition(":")
    path = Path(file_name)
    module = import_file(f"method {name}", path)
    module_name = re.sub(r"^(?=\d)|\W", "_", path.stem)
    if sys.modules.setdefault(module_name, module) is not module:
        module_name = f"{module_name}_"
        sys.modules[module_name] = module
    return f"{module_name}:{class_name}"


def importable_name(name: str) -> str:
    """Return :func:`agreed_name` for a document that other machines read: by that name they have to find the same file.

    Raises `ConfigurationError` for a file whose name is no module's, or that of another module.
    """
    agreed = agreed_name(name)
    if is_file_path(name):
        path = Path(name.rpartition(":")[0])
        if agreed.rpartition(":")[0] != path.stem or not _is_found_by_name(path):
            reason = "is another module's" if path.stem.isidentifier() else "is no module's"
            raise ConfigurationError(
                f"method {name}: nodes import it by the name {path.stem!r}, which {reason}; rename it"
            )
    return agreed


def _is_found_by_name(path: Path) -> bool:
    """Whether an import by the file's name finds this file, though its folder is searched last."""
    if path.stem in sys.builtin_module_names:
        return False
    others = [folder for folder in sys.path if Path(folder).resolve() != path.resolve().parent]
    found = importlib.machinery.PathFinder.find_spec(path.stem, others)
    return found is None or found.origin is None


def locate_method(name: str) -> str:
    """Return where the method's class is, as 'module:Class'.

    Raises `ConfigurationError` for a name that nobody registered, or more than one: peers must mean the same by it.
    """
    if is_import_path(name):
        return name
    installed = installed_methods()
    places = {METHODS[name]: "fedchain"} if name in METHODS else {}
    places |= installed.get(name, {})
    if not places:
        raise UnknownName("method", name, {*METHODS, *installed})
    if len(places) > 1:
        claims = " and ".join(f"{package} ({place})" for place, package in places.items())
        raise ConfigurationError(
            f"method '{name}' is registered by {claims}; rename or remove one, or use module:Class"
        )
    (place,) = places
    if not is_import_path(place):
        raise ConfigurationError(
            f"method '{name}' of {places[place]} must be registered as module:Class, not '{place}'"
        )
    return place


def import_module(what: str, name: str) -> ModuleType:
    """Import a module of the user's. Raises `ConfigurationError`, which begins with `what`, where it is impossible."""
    with in_this_folder(f"{what}: its import"):
        try:
            return importlib.import_module(name)
        except OWN_CODE_ERRORS as error:
            if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
                raise ConfigurationError(f"{what}: there is no module '{error.name}'{_places(name)}") from error
            raise ConfigurationError(f"{what}: its import raised {one_line(error)}") from error


def require_file(what: str, path: Path) -> None:
    """Raise `ConfigurationError`, which begins with `what`, if there is no such file."""
    if not path.is_file():
        raise ConfigurationError(f"{what}: there is no file {path}")


def import_file(what: str, path: Path) -> ModuleType:
    """Import a file by its place. Raises `ConfigurationError`, which begins with `what`, where it is impossible.

    The module is called as it would be if its folder were the current one, unless another one is called so. A file that
    was imported here, and was edited since, is imported anew, as a session in a notebook expects of a file's name.
    """
    require_file(what, path)
    path = path.resolve()
    if path == running_script():
        return sys.modules["__main__"]
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{what}: its import raised {one_line(error)}") from error
    known = {name: module for name, module in list(sys.modules.items()) if getattr(module, "__file__", "") == str(path)}
    for module in known.values():
        if getattr(module.__spec__, "loader_state", None) in (None, source):  # None: Python's own import
            return module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # modules beside it are found, and no file there takes a library's place
    name = next(iter(known), f"{path.stem}_" if path.stem in sys.modules else path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, f"{path} ends with {FILE_SUFFIX}"
    spec.loader_state = source
    made = importlib.util.module_from_spec(spec)
    sys.modules |= dict.fromkeys([name, *known], made)
    try:
        with in_this_folder(f"{what}: its import"):
            try:
                exec(compile(source, path, "exec", dont_inherit=True), vars(made))
            except OWN_CODE_ERRORS as error:
                raise ConfigurationError(f"{what}: its import raised {one_line(error)}") from error
    except BaseException:
        del sys.modules[name]
        sys.modules |= known
        raise
    return made


@contextmanager
def in_this_folder(what: str) -> Iterator[None]:
    """Let a user's own code run, and stay in the current folder: others' paths begin there.

    Raises `ConfigurationError`, which begins with `what`, where that code went elsewhere.
    """
    before = _current_folder()
    yield
    after = _current_folder()
    if before and after != before:
        os.chdir(before)
        raise ConfigurationError(
            f"{what} went to the folder {after}, and all paths that are given would begin there: "
            "it must name its files by whole paths, such as Path(__file__).parent"
        )


def _current_folder() -> str:
    with suppress(FileNotFoundError):  # it was removed
        return os.getcwd()
    return ""


def running_script() -> Path | None:
    """Return the whole path of the script that runs; None in a notebook, a shell or an archive, which is no file."""
    file = getattr(sys.modules["__main__"], "__file__", None) or ""
    return Path(file).resolve() if file.endswith(FILE_SUFFIX) and Path(file).is_file() else None


def use_current_folder() -> None:
    """Let modules of the current folder be imported, after all others: no file there takes a library's place.

    So are those of the folder that the environment names, behind them.
    """
    folders = [os.environ.get(MODULES_VARIABLE, "")]
    folders.insert(0, _current_folder())
    sys.path.extend(folder for folder in folders if folder and folder not in sys.path)


def _places(name: str) -> str:
    """Say where a module was looked for, or which part of its name is too much."""
    if name.endswith(".py"):
        return f"; the name of a module has no .py: {name.removesuffix('.py')}"
    if not {"", os.getcwd()} & {*sys.path}:
        return " on Python's path, to which PYTHONPATH=. adds the current folder"
    return " in the current folder or on Python's path"


def is_import_path(name: str) -> bool:
    """Whether the name has the form 'module:Name'."""
    module_name, _, attribute = name.partition(":")
    return attribute.isidentifier() and all(part.isidentifier() for part in module_name.split("."))


def is_file_path(name: str) -> bool:
    """Whether the name has the form 'FILE.py:name'."""
    file_name, _, attribute = name.rpartition(":")
    return attribute.isidentifier() and file_name.endswith(FILE_SUFFIX)


def installed_methods() -> dict[str, dict[str, str]]:
    """Name of each method that installed packages register -> where its class is -> the package that says so.

    Asking all packages takes longer than building most methods, so the answer stays while their folders do.
    """
    changes = [(folder, stat.st_mtime_ns) for folder in sys.path if (stat := _stat(folder or ".")) is not None]
    return _registered_in(tuple(changes))


def _stat(folder: str) -> os.stat_result | None:
    try:
        return os.stat(folder)
    except OSError:
        return None


@lru_cache(maxsize=1)
def _registered_in(folders: tuple[tuple[str, int], ...]) -> dict[str, dict[str, str]]:
    """Ask the packages on Python's path; ``folders`` has its folders and when each was changed."""
    from importlib.metadata import entry_points

    found: dict[str, dict[str, str]] = {}
    for point in entry_points(group=ENTRY_POINTS):
        found.setdefault(point.name, {})[point.value] = point.dist.name if point.dist else "an unnamed package"
    return found


def _validate_fields(name: str, method: "Method") -> None:
    """Raise `ConfigurationError` for a field of a user's own method that no document holds, by its default, too: a
    chain would be founded that nobody can read.
    """
    if not is_own_code(type(method)):
        return
    _validate_defaults(name, type(method))
    known = _hyperparameters(type(method))
    for field in fields(method):
        what, expected, value = f"{name}.{field.name}", known[field.name], getattr(method, field.name)
        try:
            read = json.loads(json.dumps(value))
        except (TypeError, ValueError):
            read = None
        is_usual = expected in _TYPES or typing.get_origin(expected) is typing.Literal
        if not is_usual and type(read) is not expected:
            raise ConfigurationError(
                f"{what} is of type {_shown(expected)}: a field is a hyper-parameter, of type bool, int, float or str, "
                "or one of the values of a Literal; a ClassVar is none"
            )
        if not field.init:
            raise ConfigurationError(f"{what} cannot be given: a field is a hyper-parameter; a ClassVar is none")
        _checked(what, value if read is None else read, expected)


def _validate_defaults(name: str, method_class: "type[Method]") -> None:
    """Raise `ConfigurationError` for a default that a body states and no instance takes: for want of the decorator, or
    of a type. The inherited default would be trained with instead.
    """
    defaults = {field.name: field.default for field in fields(method_class)}
    typed = {
        attribute
        for attribute, hint in _hints(method_class).items()
        if typing.ClassVar not in (hint, typing.get_origin(hint))
    }
    stated: dict[str, Any] = {}
    for kind in reversed(method_class.__mro__):
        if is_own_code(kind):
            stated.update(vars(kind))
    for attribute, value in stated.items():
        # A class with slots has its own descriptor there.
        is_taken = isinstance(value, MemberDescriptorType) or value is defaults.get(attribute, MISSING)
        if attribute in typed and not is_taken:
            raise ConfigurationError(
                f"{name}.{attribute} = {value!r} is no default: a hyper-parameter has a type, and "
                "@dataclass(frozen=True, kw_only=True) stands above its class; a ClassVar is none"
            )


def _shown(expected: Any) -> str:
    return expected.__name__ if isinstance(expected, type) else str(expected)


def _checked(name: str, value: HyperparameterValue, expected: Any) -> HyperparameterValue:
    """Return the value as the field's type wants it (an integer serves as a float), or refuse it."""
    if typing.get_origin(expected) is typing.Literal:
        choices = typing.get_args(expected)
        if value not in choices:
            raise UnknownName(f"value of {name}", str(value), choices)
        return value
    if expected is float and type(value) is int:
        value = float(value)
    if type(value) is not expected:
        raise ConfigurationError(f"{name} must be {_shown(expected)}, not {type(value).__name__} ({value!r})")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigurationError(f"{name} must be finite, not {value}")
    return value
