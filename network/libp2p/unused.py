"""Packages that libp2p imports and this program never uses: they need not be installed, or need not be loaded.

libp2p 0.8.1 imports fastecdsa for keys on P-256, coincurve for keys on secp256k1, and miniupnpc to open ports in home
routers. All keys here are Ed25519 and ports are their owner's affair. fastecdsa has no wheels for any system, the
other two have none for the newest Python: with them, installing would need a compiler and the headers of GMP. Where
one of them is installed, it is used.

Transports over QUIC, discovery by multicast and certificates from the web are never begun either. The packages that
they import are installed with libp2p; loading them would take a sixth of a node's memory and a quarter of its start-up
time.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, NoReturn

UNUSED = ("coincurve", "fastecdsa", "miniupnpc")
"""Packages that may be absent."""

HEAVY = ("aioquic", "httpx", "requests", "zeroconf")
"""Packages that are there and that libp2p is imported without."""


class NotInstalled(ValueError):
    """Something of an absent package is called: a key is of another kind than Ed25519."""


def allow_absence() -> None:
    """Let libp2p be imported without the packages. Nothing of them can be called by it."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder(UNUSED))  # last, so that what is installed is found first
        sys.meta_path.insert(0, _LibraryFinder())


class _Finder(MetaPathFinder):
    """Finds a placeholder for each module of some packages."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        is_ours = fullname.partition(".")[0] in self._packages
        return ModuleSpec(fullname, _Loader(), is_package=True) if is_ours else None


class _LibraryFinder(MetaPathFinder):
    """Finds libp2p itself, where Python would."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == "libp2p" else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _LibraryLoader(spec.loader.name, spec.loader.path)
        return spec


class _LibraryLoader(SourceFileLoader):
    """Loads libp2p, and with it all that it imports, without the heavy packages. Others may import these as ever."""

    def exec_module(self, module: ModuleType) -> None:
        finder = _Finder(HEAVY)
        sys.meta_path.insert(0, finder)
        try:
            super().exec_module(module)
        finally:
            sys.meta_path.remove(finder)
            for name, found in list(sys.modules.items()):
                if isinstance(found, _Placeholder) and name.partition(".")[0] in HEAVY:
                    del sys.modules[name]


class _Loader(Loader):
    """Loads nothing."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Placeholder(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _Placeholder(ModuleType):
    """A module that has every attribute that it is asked for."""

    def __getattr__(self, name: str) -> "_Absent":
        return _absent(self.__name__, name)


class _Absent(type):
    """Stands for a class or function where it is named, as in an annotation, and cannot be called."""

    def __getattr__(cls, name: str) -> "_Absent":
        return _absent(cls.__qualname__, name)

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        package = cls.__qualname__.partition(".")[0]
        raise NotInstalled(f"{cls.__qualname__} is called, and {package} is not installed: only Ed25519 keys are used")


def _absent(owner: str, name: str) -> _Absent:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Absent(name, (), {"__qualname__": f"{owner}.{name}"})
