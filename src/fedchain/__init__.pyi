from fedchain.chains import Chain as Chain
from fedchain.chains import open_chain as open_chain
from fedchain.learning.client import Client as Client
from fedchain.learning.method import Method as Method
from fedchain.learning.method import Phase as Phase
from fedchain.learning.round import Round as Round
from fedchain.runs import RoundRecord as RoundRecord
from fedchain.runs import Run as Run
from fedchain.runs import open_run as open_run
from fedchain.runs import simulate as simulate
from fedchain.runs import simulate_async as simulate_async
from fedchain.simulator.scenario import Scenario as Scenario

from . import testing as testing

__version__: str
__all__: list[str]
