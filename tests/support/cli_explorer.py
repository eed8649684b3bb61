"""The explorer's commands, as a test calls them."""

from typer.testing import CliRunner, Result

from fedchain.cli.explorer import explorer_app
from tests.support.chain.explored import FakeRules


def explore(*arguments: object, rules: FakeRules | None = None) -> Result:
    app = explorer_app(lambda methods: lambda genesis: rules or FakeRules())
    return CliRunner().invoke(app, [str(argument) for argument in arguments])
