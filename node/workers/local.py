"""Settings that a member chooses for its own training; everything else is agreed on."""

from typing import NamedTuple


class Local(NamedTuple):
    """Settings of one machine, in the order in which a training process is told them."""

    data_dir: str = ""
    """Folder of the data set."""
    task: str = ""
    """The user's function, if the members' data are their own. It runs in the training process alone."""
    device: str = "cpu"
    """Where models are trained: a name that ``fedchain.learning.device.find_device`` takes."""
    weights: str = ""
    """File of the weights that models begin with, where members agreed on one."""


DEFAULTS = Local()
"""A member that chooses nothing."""
