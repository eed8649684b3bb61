"""Origins of models in files: those of a finished run's members, and files from elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedchain.files.layout import NO_FILE, is_device
from fedchain.files.spool import read_in_place, unfinished, write_file_of
from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.worker.checkpoint import state_pieces
from fedchain.learning.worker.model_file import ModelState, read_model
from fedchain.learning.worker.model_origin import Origin, read_origin, write_origin
from fedchain.simulator.engine.outcome import Outcome


@dataclass(frozen=True, slots=True)
class FileModel:
    """The model of a safetensors file, and the origin that the file states."""

    state: ModelState
    origin: Origin | None
    """Origin of the model; None if another program wrote the file."""


def read_file(path: Path) -> FileModel:
    """Read a model's file. Raises `ConfigurationError`, which names it, if it cannot be read, as a pipe cannot."""
    if is_device(path):  # somebody else may have made the folder
        raise ConfigurationError(f"{path} cannot be read: it is {NO_FILE}")
    try:
        data = read_in_place(path)
        return FileModel(read_model(data), read_origin(data))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except ConfigurationError:
        raise ConfigurationError(f"{path} is no safetensors file") from None


def origin_of(config: LearningConfig, chain_id: bytes, *, member: int | None, **values: Any) -> Origin:
    """The origin of a model; ``values`` are the other fields of `Origin`."""
    model = OWN if config.dataset == OWN else config.model_of(config.part_of(member or 0))
    return Origin(
        chain_id=chain_id.hex(), method=config.method, dataset=config.dataset, model=model, member=member, **values
    )


def add_origins(files: Mapping[int, Path], config: LearningConfig, chain_id: bytes, outcome: Outcome) -> None:
    """Add origins to the files of final models, with the run's measurements.

    Args:
        files: the clients' files, by number.
        config: the task of the run.
        chain_id: the chain ID of the run's federation.
        outcome: the result of the run.
    """
    for member, path in files.items():
        found: dict[str, Any] = {"round": None}
        if member in outcome.last_local:
            number, measured = outcome.last_local[member]
            found["round"] = number
            if measured is not None:
                found |= {"accuracy": measured.local_accuracy, "loss": measured.local_loss}
                found["test_accuracy"] = measured.test_accuracy
        origin = origin_of(config, chain_id, member=member, **found)
        with unfinished(path) as other:
            write_file_of(state_pieces(read_file(path).state, write_origin(origin)), other)
