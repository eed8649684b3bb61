"""A function of one's own has a name."""

from functools import partial

from fedchain.learning.task.choice import name_task
from tests.python.tasks import load


def test_a_function_is_named_as_far_as_a_name_leads_to_it() -> None:
    assert name_task(load) == "tests.python.tasks:load"
    assert name_task(lambda: load) == name_task(partial(load, 1)) == ""
