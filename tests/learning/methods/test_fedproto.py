"""FedProto against its formulas."""

from fedchain.learning.methods.dfpl import Dfpl
from fedchain.learning.methods.fedproto import FedProto
from fedchain.learning.registry import HyperparameterValue, build_method
from tests.support.learning.federation import Federation, config


def test_fedproto_is_dfpl_with_the_settings_of_its_code() -> None:
    method = build_method("fedproto", {})
    assert isinstance(method, FedProto)
    assert (method.learning_rate, method.batch_size, method.momentum, method.local_epochs) == (0.01, 4, 0.5, 1)
    settings: dict[str, HyperparameterValue] = {
        "local_epochs": 1,
        "momentum": 0.5,
        "prototype_source": "last_epoch",
        "shared_init": False,
    }
    ours = Federation(config("fedproto", learning_rate=0.1, batch_size=32, local_epochs=1))
    dfpl = Federation(config("dfpl", **settings))
    ours.play(2)
    dfpl.play(2)
    assert ours.knowledge == dfpl.knowledge
    assert isinstance(method, Dfpl)
