"""The devices that tests train on: the processor, and a graphics card where there is one."""

import pytest
import torch

CPU = torch.device("cpu")

CARD = torch.device("cuda", 0)

needs_card = pytest.mark.skipif(torch.cuda.device_count() == 0, reason="there is no graphics card here")

DEVICES = [pytest.param(CPU, id="cpu"), pytest.param(CARD, id="card", marks=needs_card)]
