"""The specs that are put through the contract: every method, and some of their settings."""

from __future__ import annotations

import glocal
import toys

TEXT = "char-lstm(embedding=2,hidden=3,layers=1)"
OF_IMAGES_OR_TEXTS = {
    "jigsaw": ("jigsaw(grid=3,hidden=3,shared=last(1),warmup=0)", "mlp(5)", toys.images),
    "masked-tokens": ("masked-tokens(0.5,hidden=3,shared=last(1),warmup=0)", TEXT, toys.texts),
    "rotation": ("rotation(0.5,hidden=3,shared=last(1),warmup=0)", "lenet", toys.images),
}
"""A spec, a model and data for each auxiliary that needs images or texts."""

OF_OTHER_DATA = {"adversary", *OF_IMAGES_OR_TEXTS}
"""What needs other data; tests/slots/test_adversary.py and test_auxiliaries.py have them."""

SPECS = [
    *(name for name in glocal.list_methods() if name not in OF_OTHER_DATA),
    "fedavg+uniform",
    "fedavg+adam(lr=0.01)",
    "momentum(lr=0.5,epochs=1)",
    "fedavg(shared=last(1))",
    "fedavg(shared=nothing)",
    "fedavg(optimiser=adam,lr=0.01,epochs=2)",
    "fedavg(batch_size=0)",
    "fedprox(mu=0.5,momentum=0.9,weight_decay=0.001)",
    "fedprox(mu=0.5,shared=all-but-last)+adam",
    "fedavg(grad_clip=0.05,momentum=0.5)",
]

EVERYBODY = {"aaggff-s", "afl"}
"""What decides over all clients in every round."""

SMALL = {
    "autoencoder": "autoencoder(hidden=3,shared=last(1),warmup=0)",
    "aux-head": "aux-head(shared=last(1),warmup=0)",
    "pretrain": "pretrain(2,shared=last(1),warmup=0)",
    "fedcgan": "fedcgan(width=1,code=2,steps=none)",
    "fedcvae": "fedcvae(width=1,code=2,steps=none)",
    "fedrep": "fedrep(head_epochs=2)",
    "pfedme": "pfedme(inner=2)",
}
"""Of what has networks of its own, smaller ones; of what takes many steps in a round, fewer; of
what acts on private layers, some layer that is."""
