"""Any module that returns logits, any tensors, and one client id for each row."""

import torch
from torch import Tensor, nn

import glocal


class Gated(nn.Module):
    """Two layers, one of which says how much of the other counts."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.gate = nn.Linear(6, 16), nn.Linear(6, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch."""
        return self.head(self.value(x).relu() * self.gate(x).sigmoid())


torch.manual_seed(0)
hospital = torch.randint(0, 5, (300,))  # the client of each row
x = torch.randn(300, 6) + 0.3 * hospital.unsqueeze(1)  # every hospital measures a bit higher
y = (x @ torch.tensor([1.0, -1, 1, 0, 0, 2]) > 0.9 * hospital).long()

fed = glocal.federation(x, y, clients=hospital, seed=0)
run = glocal.fit("fedprox(mu=0.1)", fed, model=Gated, rounds=30, baseline="local(max_epochs=20)")
print(run)
for row in run.clients:
    print(f"hospital {row['client']}: {row['accuracy']:.2f}, alone {row['local_accuracy']:.2f}")

module = run.client_model("3").module  # an nn.Module again, as trained for this client
print(type(module).__name__, "with", sum(p.numel() for p in module.parameters()), "parameters")
