"""A user's own files are known by what they hold, so that nothing computed with other code is taken for theirs."""

import linecache
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fedchain.learning.exceptions import ConfigurationError
from fedchain.simulator.own_code import hashes_of_own, typed_source
from fedchain.simulator.reproduction.experiment import key_of
from fedchain.simulator.resuming.resume import identity
from fedchain.simulator.scenario import Scenario

METHOD = """
from dataclasses import dataclass
from fedchain.learning.methods.blade_fl import BladeFl

@dataclass(frozen=True, kw_only=True)
class Mine(BladeFl):
    '''Mine.'''
"""


def test_a_result_of_a_method_that_was_changed_since_is_none_of_it(tmp_path: Path) -> None:
    """Else a comparison that goes on would print the numbers of the code as it was."""
    file = tmp_path / "changing.py"
    file.write_text(METHOD)
    scenario = Scenario(method=f"{file}:Mine")
    before, known = key_of(scenario), identity(scenario)
    assert list(hashes_of_own(scenario)) == [scenario.method]
    assert (key_of(scenario), identity(scenario)) == (before, known)
    file.write_text(METHOD + "# another\n")
    assert key_of(scenario) != before
    assert identity(scenario) != known
    file.write_text(METHOD)
    assert key_of(scenario) == before


def test_a_module_and_weights_count_by_what_they_hold(tmp_path: Path) -> None:
    assert hashes_of_own(Scenario(method="fedavg")) == {}
    module = Scenario(method="tests.support.learning.small_keys:SmallKeyDfpl")
    assert len(hashes_of_own(module)) == 1
    for name in ("one", "same"):
        (tmp_path / name).write_bytes(b"one")
    one, same = (Scenario(method="fedavg", weights=str(tmp_path / name)) for name in ("one", "same"))
    before = key_of(one)
    assert before == key_of(same) != key_of(Scenario(method="fedavg"))
    (tmp_path / "one").write_bytes(b"other")
    assert key_of(one) != before
    with pytest.raises(ConfigurationError, match="gone cannot be read"):
        key_of(Scenario(method="fedavg", weights=str(tmp_path / "gone")))


NOTEBOOK = """
from dataclasses import dataclass
from functools import cache
from fedchain.learning.methods.blade_fl import BladeFl

@cache
def helped(value):
    return value * 2

class Model:
    def forward(self, x):
        return helped(x)

@dataclass(frozen=True, kw_only=True)
class Mine(BladeFl):
    share: float = 0.5
    @property
    def phases(self):
        return super().phases
    def update(self, client, round):
        return [helped(value) for value in ()]

def load(member):
    return Model, (), ()

def bound(scale):
    return lambda member: helped(member)

class Loader:
    def __call__(self, member):
        return Model, (), ()
    def load(self, member):
        return self(member)

unused = 1
"""
"""Cells of a notebook, of which `inspect` knows the functions' source and no class's."""

_cells = count()


def _entered(text: str) -> dict[str, Any]:
    place = f"<cell {next(_cells)}>"
    linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
    names: dict[str, Any] = {"__name__": "a notebook"}
    exec(compile(text, place, "exec"), names)
    return names


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("unused = 1", "unused = 2", ""),
        ("value * 2", "value * 3", "Mine load closed partial instance method"),
        ("helped(x)", "helped(-x)", "load partial instance method"),
        ("share: float = 0.5", "share: float = 0.6", "Mine"),
        ("super().phases", "super().phases[:1]", "Mine"),
        ("return Model, (), ()", "return Model, [], []", "load partial instance method"),
        ("return self(member)", "return self(-member)", "instance method"),
    ],
)
def test_code_of_a_notebook_counts_with_all_of_the_notebook_that_it_names(
    before: str, after: str, changed: str
) -> None:
    def told(text: str) -> dict[str, bytes]:
        names = _entered(text)
        mine, load, bound, loader = names["Mine"], names["load"], names["bound"](1), names["Loader"]()
        made = {"Mine": mine, "load": load, "closed": bound}
        made |= {"partial": partial(load, 1), "instance": loader, "method": loader.load}
        return {key: typed_source(value) for key, value in made.items()}

    first, again, other = told(NOTEBOOK), told("\n\n" + NOTEBOOK), told(NOTEBOOK.replace(before, after))
    assert first == again
    assert all(first.values())
    assert {key for key in first if first[key] != other[key]} == {*changed.split()}


VALUES = """
from functools import partial

scale, layers, calls = 1.0, (4, 2), 0

def load(member, alpha=scale):
    global calls
    calls += 1
    return [scale * layer for layer in layers]

def bound(scale):
    count = 0
    def load(member):
        nonlocal count
        count += 1
        return scale
    return load

class Loader:
    def __init__(self, scale):
        self.scale, self.count = scale, 0
    def __call__(self, member):
        self.count += 1
        return self.scale
    def load(self, member):
        return self(member)
"""


def test_plain_values_that_code_of_a_notebook_is_given_count_as_its_lines_do() -> None:
    """A run whose examples were scaled by 1 went on with others, scaled by 2, without a word."""
    names = _entered(VALUES)
    load, bound = names["load"], names["bound"]
    ways = [partial(load, 1), partial(load, 2), partial(load, alpha=1), bound(1), bound(2), load]
    loaders = [names["Loader"](scale) for scale in (1.0, 2.0)]
    ways += [*loaders, partial(loaders[0].load, 1)]
    assert typed_source(loaders[1]) == typed_source(loaders[1].load)
    assert len({typed_source(way) for way in ways}) == len(ways)
    assert typed_source(partial(load, 1)) == typed_source(partial(load, 1))
    counting = load, ways[3], loaders[0]
    before, *_ = counted = [typed_source(way) for way in counting]
    for way in counting:
        way(0)
    assert [typed_source(way) for way in counting] == counted  # what code counts itself is no code
    for name, value in (("scale", 2.0), ("layers", (4, 3))):
        assert typed_source(_entered(VALUES)["load"]) == before
        changed = _entered(VALUES)
        changed[name] = value
        assert typed_source(changed["load"]) != before
