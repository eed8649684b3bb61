"""The pages as a test asks for them."""

from pathlib import Path
from typing import Any

from fedchain.node.founding.task import rules_of
from fedchain.web.app import Site
from fedchain.web.chains import open_chains
from fedchain.web.places import find_places

HOME = "http://localhost"


def site(*folders: Path, rules: Any = rules_of, hosts: tuple[str, ...] = ()) -> Site:
    return Site(open_chains(find_places(folders), rules), hosts)
