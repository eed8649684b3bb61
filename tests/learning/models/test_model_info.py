"""The shapes of a user's model come from a document that anybody may have written."""

import json
from dataclasses import replace
from typing import Any

import pytest

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.model_info import (
    PARAMETERS_MAX,
    LowRank,
    ModelInfo,
    read_model_info,
    validate_bounds,
    validate_same,
    write_model_info,
)

INFO = ModelInfo(
    (("fc.weight", (3, 2)), ("fc.bias", (3,))),
    embedding_size=2,
    classes=3,
    trainable=frozenset({"fc.weight", "fc.bias"}),
    normalization=frozenset(),
    input_shape=(2,),
)


def test_shapes_are_read_back() -> None:
    assert read_model_info(write_model_info(INFO)) == INFO


def test_the_shape_of_features_stands_in_a_document_where_there_is_one() -> None:
    assert "feature_shape" not in write_model_info(INFO)
    split = replace(INFO, feature_shape=(16, 4, 4))
    assert write_model_info(split)["feature_shape"] == (16, 4, 4)
    assert read_model_info(write_model_info(split)) == split
    with pytest.raises(ConfigurationError, match=r"feature_shape of the model is None, but .* \(16, 4, 4\)"):
        validate_same(INFO, split)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"more": 1}, "shapes must hold parameters, embedding_size, classes, trainable, normalization, input_shape"),
        ({"parameters": [["a" * 151, [1]]]}, "a tensor's name must be text of at most 150 bytes"),
        ({"parameters": [[1, [1]]]}, "a tensor's name must be text"),
        ({"parameters": [["a", [1]], ["a", [2]]]}, "2 tensors have 1 different names"),
        ({"parameters": [["a", [1] * 17]]}, "at most 16 dimensions"),
        ({"parameters": [["a", [-1]]]}, "a tensor's sizes must be integers from 0 to"),
        ({"parameters": [["a", [1.0]]]}, "a tensor's sizes must be integers"),
        ({"parameters": [["a", [True]]]}, "a tensor's sizes must be integers"),
        ({"parameters": [["a", [PARAMETERS_MAX, 2]]]}, "the model has 1,073,741,824 scalars, at most 536,870,912"),
        ({"embedding_size": 2**20, "classes": 2**20}, "scalars, at most 536,870,912"),
        ({"classes": 0}, "embedding_size is 2, classes is 0, less than 1"),
        ({"input_shape": ["x"]}, "a tensor's sizes must be integers"),
        ({"feature_shape": [2**20, 2**20]}, "scalars, at most 536,870,912"),
    ],
)
def test_shapes_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_model_info(write_model_info(INFO) | changes)


@pytest.mark.parametrize("value", [None, [], {}, {"parameters": []}])
def test_what_is_no_table_of_shapes_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="shapes must hold"):
        read_model_info(value)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            replace(INFO, parameters=INFO.parameters[:1]),
            "tensor 1 of the model is nothing, but .* it is fc.bias \\(3,\\)",
        ),
        (replace(INFO, parameters=INFO.parameters[::-1]), "tensor 0 of the model is fc.bias \\(3,\\), but"),
        (replace(INFO, embedding_size=3), "embedding_size of the model is 3, but in the genesis it is 2"),
        (replace(INFO, classes=4), "classes of the model is 4, but in the genesis it is 3"),
        (
            replace(INFO, input_shape=(2, 1)),
            "input_shape of the model is \\(2, 1\\), but in the genesis it is \\(2,\\)",
        ),
    ],
)
def test_the_first_difference_is_named(other: ModelInfo, message: str) -> None:
    validate_same(INFO, INFO)
    with pytest.raises(ConfigurationError, match=message):
        validate_same(other, INFO)


# --- parameters of several names

TIED = ModelInfo(
    (("read", (4, 2)), ("norm", (4, 2)), ("write", (4, 2)), ("head", (3, 2))),
    embedding_size=2,
    classes=3,
    trainable=frozenset({"head", "read"}),
    normalization=frozenset(),
    input_shape=(2,),
    tied=(("write", "read"),),
)


def test_other_names_stand_in_a_document_where_there_are_any_and_in_no_post() -> None:
    assert "tied" not in write_model_info(INFO)
    assert read_model_info(json.loads(json.dumps(write_model_info(TIED)))) == TIED
    assert TIED.unposted == {"write"}
    assert TIED.stored == {"read", "norm", "write", "head"}, "a file of the model has it by all names"


@pytest.mark.parametrize(
    "tied",
    [
        [["write", "norm"]],
        [["read", "read"]],
        [["head", "read"]],
        [["norm", "head"]],
        [["nowhere", "read"]],
        [["write", "nowhere"]],
    ],
    ids=str,
)
def test_other_names_that_cannot_be_are_refused(tied: list[list[str]]) -> None:
    with pytest.raises(ConfigurationError, match="is no other name of a trained tensor of its shape"):
        read_model_info(write_model_info(TIED) | {"tied": tied})


def test_other_names_stand_once_and_in_order() -> None:
    for tied in ([["write", "read"], ["norm", "read"]], [["write", "read"]] * 2):
        with pytest.raises(ConfigurationError, match="tied must be sorted and without repetition"):
            read_model_info(write_model_info(TIED) | {"tied": tied})


def test_members_tie_what_the_document_says_but_for_an_older_one() -> None:
    validate_same(TIED, TIED)
    validate_same(TIED, replace(TIED, tied=()))
    with pytest.raises(ConfigurationError, match="in the model nothing, but in the genesis write is read"):
        validate_same(replace(TIED, tied=()), TIED)


# --- frozen weights and adapters

LAYER = LowRank("fc.base", "fc.A", "fc.B", 2.0, False)

ADAPTED = ModelInfo(
    (("fc.base", (3, 2)), ("fc.A", (1, 2)), ("fc.B", (3, 1)), ("other", (9,))),
    embedding_size=2,
    classes=3,
    trainable=frozenset({"fc.A", "fc.B"}),
    normalization=frozenset(),
    input_shape=(2,),
    frozen=frozenset({"fc.base", "other"}),
    frozen_hash="ab" * 32,
    low_rank=(LAYER,),
)


def test_frozen_tensors_and_adapters_stand_in_a_document_where_there_are_any() -> None:
    assert not {"frozen", "frozen_hash", "low_rank"} & write_model_info(INFO).keys()
    assert read_model_info(json.loads(json.dumps(write_model_info(ADAPTED)))) == ADAPTED


def test_a_member_stores_what_may_differ_from_everybody_s() -> None:
    assert INFO.stored == {"fc.weight", "fc.bias"}
    assert ADAPTED.stored == {"fc.A", "fc.B", "fc.base"}, "residuals are added to the base"
    ffa = replace(ADAPTED, trainable=frozenset({"fc.B"}), frozen=ADAPTED.frozen | {"fc.A"})
    assert ffa.stored == {"fc.A", "fc.B"}
    assert replace(ADAPTED, low_rank=()).stored == {"fc.A", "fc.B"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frozen": ["other", "fc.base"]}, "must be sorted"),
        ({"frozen": ["fc.base", "what"]}, "but there is no such tensor"),
        ({"frozen": ["fc.A", "fc.base"]}, "fc.A is trainable and frozen"),
        ({"frozen_hash": "AB" * 32}, "frozen_hash must be the SHA-256"),
        ({"frozen": [], "low_rank": []}, "frozen_hash must be the SHA-256 of frozen tensors"),
        ({"low_rank": [LAYER, LAYER]}, "2 adapters are of 1 layers"),
        ({"low_rank": [LAYER._replace(is_transposed=True)]}, r"fc.B \(3, 1\) is none of the frozen fc.base \(3, 2\)"),
        ({"low_rank": [LAYER._replace(base="other")]}, r"is none of the frozen other \(9,\)"),
        ({"low_rank": [LAYER._replace(base="fc.A")]}, "is none of the frozen fc.A"),
        ({"low_rank": [LAYER._replace(down="nowhere")]}, r"adapter nowhere \(\)"),
        ({"low_rank": [LAYER._replace(scale=float("nan"))]}, "has scale nan"),
        ({"low_rank": [LAYER._replace(scale=1e7)]}, "has scale 10000000.0"),
        ({"low_rank": [(*LAYER[:4], 0)]}, "has scale 2.0 and is_transposed 0"),
    ],
)
def test_adapters_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_model_info(write_model_info(ADAPTED) | changes)


def test_frozen_scalars_count_only_where_something_is_added_to_them() -> None:
    large = replace(ADAPTED, parameters=(*ADAPTED.parameters[:3], ("other", (PARAMETERS_MAX,))))
    validate_bounds(large)
    with pytest.raises(ConfigurationError, match="scalars, at most"):
        validate_bounds(replace(large, frozen=frozenset({"fc.base"})))


def test_members_need_the_frozen_tensors_of_the_document_but_for_an_older_one() -> None:
    validate_same(ADAPTED, ADAPTED)
    with pytest.raises(ConfigurationError, match=r"2 frozen tensors have SHA-256 abab.* in the genesis it is cdcd"):
        validate_same(ADAPTED, replace(ADAPTED, frozen_hash="cd" * 32))
    with pytest.raises(ConfigurationError, match="other is frozen in the model or in the genesis, but not in both"):
        validate_same(replace(ADAPTED, frozen=frozenset({"fc.base"})), ADAPTED)
    older = replace(ADAPTED, frozen=frozenset(), frozen_hash="", low_rank=())
    validate_same(replace(ADAPTED, low_rank=()), older)
