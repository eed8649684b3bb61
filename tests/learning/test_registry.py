"""Methods by name."""

import math
import re
import sys
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import pytest

from fedchain.learning.application import Application
from fedchain.learning.compression.compressor import Compressor
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.method import Phase
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.registry import METHODS, agreed_name, build_method, import_file, load_method, name_method
from fedchain.learning.worker.learner import Learner

OF_THE_PAPERS: dict[str, dict[str, Any]] = {
    "demlearn": {"proximal_weight": 0.002, "blend": 0.7, "levels": 3, "amplified_rounds": 0, "amplification": 1.15},
    "dfpl": {"regularizer": "mse", "regularizer_weight": 1, "prototype_source": "recompute", "aggregation": "holders"},
    "fedadam": {"server_learning_rate": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3, "weighting": "examples"},
    "fedavg": {"weighting": "examples"},
    "fedcurv": {"curvature_weight": 1e-4},
    "feddkc": {"refinement": "kkr", "peak": 0.12, "sharpness": 0.05, "entropy_bits": 3.2, "initial_logits": "none"},
    "fededs": {
        **{"base": "fedavg", "proximal_weight": 0.1, "nova_step": "correct", "annealing": True, "sharing": True},
        **{"epochs_max": 5, "epochs_min": 1, "annealing_start": 1, "annealing_end": 3},
        **{"weight_slope": 3, "weight_floor": 0.01, "extractor_epochs": 5, "encryptor_epochs": 20},
        **{"encryptor_rate": 0.001, "encryptor_width": 32, "stochastic_layer": "conv", "pixel_type": "uint8"},
    },
    "fedgkt": {"distillation_weight": 1.5, "temperature": 3, "server_epochs": 1, "stage_blocks": 6},
    "fedict": {
        **{"distillation_weight": 1.5, "prior_weight": 1.5, "adjustment_weight": 1.5, "temperature": 3},
        **{"prior_temperature": 3, "residual_temperature": 7, "weight_scale": 1, "adjustment": "balance"},
        **{"distribution": "counted", "compat": "none", "initial_logits": "zeros", "stage_blocks": 6},
    },
    "fedintr": {"contrast_weight": 1, "temperature": 0.5},
    "fednova": {"proximal_weight": 0, "weighting": "examples"},
    "fedph": {"contrast_weight": 1, "temperature": 1, "noise": "none", "aggregation": "holders", "magnitude_max": 16},
    "fedproc": {"contrast_rounds": 100},
    "fedproto": {"regularizer": "mse", "regularizer_weight": 1, "prototype_source": "last_epoch"},
    "fedprox": {"proximal_weight": 0.01},
    "fedreg": {
        **{"slowness": 0.5, "pseudo_rate": 0.1, "perturbed_ratio": 0.01, "generation_steps": 10},
        **{"modified_gradient": False, "weighting": "clients"},
    },
    "moon": {"contrast_weight": 1, "temperature": 0.5},
    "mtfl": {"private": "usyb"},
    "pfedme": {"personal_learning_rate": 0.09, "personal_steps": 5, "proximal_weight": 15, "mixing": 1},
    "scaffold": {"weighting": "examples"},
    "swim": {"temperature": 0.5, "window": 4, "window_of": "models", "rounds": 100},
}
"""Defaults as papers, their code or docs/methods.md have them, beside those of local SGD."""


@dataclass(frozen=True, kw_only=True)
class Contributed(FedAvg):
    """Stands for a method in a contributor's own file."""

    strength: float = 1.0


def test_every_registered_method_loads_and_cites_its_source() -> None:
    for name in METHODS:
        module = sys.modules[load_method(name).__module__]
        assert re.search(r" et al\., | and \w+, ", module.__doc__ or ""), name


@pytest.mark.parametrize("method", OF_THE_PAPERS)
def test_defaults_are_those_of_the_papers(method: str) -> None:
    built, stated = build_method(method, {}), OF_THE_PAPERS[method]
    assert {name: getattr(built, name) for name in stated} == stated


def test_a_method_of_ones_own_is_named_by_module_and_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    LearningConfig(method="contributed:Contributed", hyperparameters={"strength": 2.0}).validate()
    assert isinstance(build_method("contributed:Contributed", {}), Contributed)


def test_a_file_that_was_edited_since_is_imported_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a notebook that names it trains by the code as it was, without a word."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "2-edited.py"
    text = "from fedchain.learning.methods.fedavg import FedAvg\nclass Mine(FedAvg):\n    number = "
    file.write_text(f"{text}1")
    assert agreed_name(f"{file}:Mine") == "_2_edited:Mine"
    first = import_file("method", file)
    assert import_file("method", file) is first
    file.write_text(f"{text}2")  # of the same size and second, by which Python's own cache of compiled code goes
    assert agreed_name(f"{file}:Mine") == "_2_edited:Mine"
    assert [getattr(load_method(name), "number", 0) for name in ("_2_edited:Mine", "fedavg")] == [2, 0]
    assert import_file("method", file) is sys.modules["2-edited"] is sys.modules["_2_edited"] is not first
    file.write_text("1 / 0")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"its import raised ZeroDivisionError: .* line 1\)$"):
            import_file("method", file)
    file.write_text(f"{text}2")
    assert import_file("method", file) is sys.modules["_2_edited"]
    for name in ("2-edited", "_2_edited"):
        monkeypatch.delitem(sys.modules, name)


def test_a_file_that_goes_to_another_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the run, and the file itself, were then looked for in that one."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    file = Path("own/goes_away.py")
    file.write_text("import os\nos.chdir(os.path.dirname(__file__))\n")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"its import went to the folder .*own, and all paths"):
            import_file("method", file)
        assert Path.cwd() == tmp_path
    monkeypatch.chdir("own")
    assert import_file("method", Path("goes_away.py")) is sys.modules["goes_away"], "it is there already"
    monkeypatch.delitem(sys.modules, "goes_away")


def test_a_module_that_python_imported_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    file = tmp_path / "imported_before.py"
    file.write_text("number = 1")
    module = __import__("imported_before")
    file.write_text("number = 2")
    assert import_file("method", file) is module
    monkeypatch.delitem(sys.modules, "imported_before")


def own(of: Any, **given: Any) -> type[FedAvg]:
    """A method of a user's own with one field more."""
    made = make_dataclass("Own", [("extra", of, field(kw_only=True, **given))], bases=(FedAvg,), frozen=True)
    made.__module__ = "contributed"
    return made


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (own(float | None, default=None), r"extra is of type float \| None: a field is a hyper-parameter"),
        (own(tuple[float, ...], default=(1.0,)), r"extra is of type tuple\[float, ...\]: a field is"),
        (own(np.ndarray, default_factory=lambda: np.ones(3)), r"extra is of type ndarray: a field is"),
        (own(object, default=object()), r"extra is of type object: a field is"),
        (own(float, default=math.inf), r"extra must be finite, not inf$"),
        (own(int, default=1.5), r"extra must be int, not float \(1.5\)$"),
        (own(Literal["a", "b"], default="c"), r"unknown value of contributed:Own.extra 'c'"),
        (own(float, default=1.0, init=False), r"extra cannot be given: a field is"),
    ],
)
def test_a_field_that_no_document_holds_is_refused(
    monkeypatch: pytest.MonkeyPatch, method: type[FedAvg], message: str
) -> None:
    """Such a method ended in a traceback, or founded a chain that nobody could read."""
    monkeypatch.setitem(sys.modules, "contributed", SimpleNamespace(Own=method))
    with pytest.raises(ConfigurationError, match=message):
        build_method("contributed:Own", {})
    with pytest.raises(ConfigurationError, match=message):
        name_method(method())


@pytest.mark.parametrize(
    "method",
    [
        own(float, default=1),
        own(float, default=np.float64(0.5)),
        own(Annotated[bool, "of a user's own"], default=True),
        own(list, default_factory=list),
    ],
)
def test_a_field_that_a_document_holds_is_taken(monkeypatch: pytest.MonkeyPatch, method: type[FedAvg]) -> None:
    monkeypatch.setitem(sys.modules, "contributed", SimpleNamespace(Own=method))
    build_method("contributed:Own", {})


@pytest.mark.parametrize(("of", "shown"), [(list, "list"), (float | None, r"float \| None")])
def test_a_value_of_another_type_is_told_with_both(monkeypatch: pytest.MonkeyPatch, of: Any, shown: str) -> None:
    monkeypatch.setitem(sys.modules, "contributed", SimpleNamespace(Own=own(of, default=None)))
    with pytest.raises(ConfigurationError, match=rf"contributed:Own.extra must be {shown}, not float \(2.0\)$"):
        build_method("contributed:Own", {"extra": 2.0})


class Refusing(FedAvg):
    """A method of a user's own that says what it refuses in a way of its own, or states its phases wrongly."""

    wrong: ClassVar[str] = ""

    def validate(self) -> None:
        if self.wrong == "validate":
            raise ValueError("no good")
        if self.wrong == "validate ends":
            raise SystemExit("no more")

    def validate_model(self, info: ModelInfo) -> None:
        if self.wrong == "validate_model":
            raise ValueError("no good")
        if self.wrong == "validate_model ends":
            raise SystemExit("no more")

    @property
    def phases(self) -> tuple[Phase, ...]:
        return {"type": ("update",), "none": ()}.get(self.wrong, super().phases)  # type: ignore[return-value]

    def payload_spec(self, phase: Phase, info: ModelInfo) -> Any:
        stated = super().payload_spec(phase, info)
        return {
            "no specs": None,
            "other specs": ("x",),
            "kind": (TensorSpec("x", (1,), "float64"),),  # type: ignore[arg-type]
            "shape": (TensorSpec("x", (-2,)),),
            "twice": stated + stated[:1],
        }.get(self.wrong, stated)

    def parts(self, phase: Phase, info: ModelInfo) -> Any:
        return {"parts": None, "kind of part": {"rows": ("x",)}}.get(self.wrong, {})

    @property
    def compressor(self) -> Compressor | None:
        if self.wrong == "compressor":
            raise ValueError("no good")
        return None

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> Any:
        return super().knowledge_spec(phase, info)[100 if self.wrong == "knowledge" else slice(None)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("validate", r"method contributed:Refusing: ValueError: no good \(.*test_registry.py, line \d+\)$"),
        ("validate_model", r"^Refusing.validate_model: ValueError: no good \(.*test_registry.py, line \d+\)$"),
        ("validate ends", r"method contributed:Refusing: SystemExit: no more \(.*test_registry.py, line \d+\)$"),
        ("validate_model ends", r"^Refusing.validate_model: SystemExit: no more \(.*test_registry.py, line \d+\)$"),
        ("type", r"^phases of Refusing must be Phase objects, not 'update'$"),
        ("none", r"^Refusing has no phase in a round$"),
        ("no specs", r"^Refusing.payload_spec of phase update: TypeError: 'NoneType' object is not iterable"),
        ("other specs", r"^Refusing.payload_spec of phase update must be TensorSpec objects, not 'x'$"),
        ("kind", r"^Refusing.payload_spec of phase update: x must be of float32, .*, not float64$"),
        ("shape", r"^Refusing.payload_spec of phase update: x has the shape \(-2,\); -1 alone is a free size$"),
        ("twice", r"^Refusing.payload_spec of phase update: tensors are named twice: model.fc1.weight$"),
        ("parts", r"^Refusing.parts of phase update: AttributeError: 'NoneType' object has no attribute 'items'"),
        ("kind of part", r"^Refusing.parts of phase update, kind rows must be TensorSpec objects, not 'x'$"),
        ("compressor", r"^Refusing.compressor: ValueError: no good \(.*test_registry.py, line \d+\)$"),
        ("knowledge", r"^Refusing.knowledge_spec of phase update: IndexError: .* \(.*test_registry.py, line \d+\)$"),
    ],
)
@pytest.mark.parametrize("role", [Application, Learner])
def test_an_own_method_that_cannot_begin_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, wrong: str, message: str, role: Any
) -> None:
    """Each was a traceback, after which nobody knew whose fault it was."""
    monkeypatch.setitem(sys.modules, "contributed", SimpleNamespace(Refusing=Refusing))
    monkeypatch.setattr(Refusing, "wrong", wrong)
    with pytest.raises(ConfigurationError, match=message):
        role(LearningConfig(method="contributed:Refusing"))


class Undecorated(FedAvg):
    """Its author forgot the decorator."""

    learning_rate: float = 0.001


class NewField(FedAvg):
    """The same, and the hyper-parameter is new."""

    extra: float = 3.0


@dataclass(frozen=True, kw_only=True)
class Untyped(FedAvg):
    """Its author forgot the type."""

    learning_rate = 0.001


class UnderOwn(Untyped):
    """Its base states a default that has no effect here either."""


@pytest.mark.parametrize("method", [Undecorated, NewField, Untyped, UnderOwn])
def test_a_default_that_no_instance_takes_is_refused(method: type[FedAvg]) -> None:
    """It was trained with the inherited one, without a word."""
    message = (
        r"(learning_rate = 0.001|extra = 3.0) is no default: .* @dataclass\(frozen=True, kw_only=True\) stands above"
    )
    with pytest.raises(ConfigurationError, match=message):
        build_method(f"{__name__}:{method.__name__}", {})
    with pytest.raises(ConfigurationError, match=message):
        name_method(method())


@dataclass(frozen=True, kw_only=True)
class Stated(FedAvg):
    """All of its defaults are taken."""

    learning_rate: float = 0.001
    beyond_dp_sgd: ClassVar[str] = ""
    scale: ClassVar = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Slotted(Stated):
    """Its body has descriptors in their place."""

    learning_rate: float = 0.002


class WithoutFields(Stated):
    """It states no hyper-parameter, so it needs no decorator: constants without a type, or of a ClassVar, are none."""

    beyond_dp_sgd = "it says"
    scale = 3.0
    limit = 4


@pytest.mark.parametrize(("method", "rate"), [(Stated, 0.001), (Slotted, 0.002), (WithoutFields, 0.001)])
def test_defaults_that_instances_take_are_taken(method: type[FedAvg], rate: float) -> None:
    built = build_method(f"{__name__}:{method.__name__}", {})
    assert cast(FedAvg, built).learning_rate == rate
