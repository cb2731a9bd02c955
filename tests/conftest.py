"""One thread a test process: threads of several processes on few cores wait for each other."""

import torch

torch.set_num_threads(1)
