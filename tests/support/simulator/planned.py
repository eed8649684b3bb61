"""The command of the planner, and a theory to be planned with."""

from typer.testing import CliRunner

from fedchain.cli.main import app
from fedchain.learning.convergence.theory import Budget, Constants
from fedchain.simulator.planning.plan import (
    Theory,
    plan_rounds,
    theory_of,
)

PAPER = Budget(total_s=100.0, iteration_s=1.0, mining_s=4.0)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def a_theory(*, weight: float, variance: float = 0.5, target: float = 4.0, learning_rate: float = 0.1) -> Theory:
    constants = Constants(
        smoothness=2.0,
        lipschitz=0.5,
        gradient_norm=4.0,
        variance=variance,
        gap=10.0,
        gradient_square=4.0,
        first_gradient_square=8.0,
    )
    planned = plan_rounds(PAPER, 20)
    return theory_of(constants, PAPER, planned, learning_rate=learning_rate, weight=weight, target=target)
