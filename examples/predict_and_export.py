"""A client's model in use: raw rows in, labels out; saved, read again, and exported."""

import tempfile
from pathlib import Path

import torch

import glocal
from glocal.prediction.exporting import export

ages = [20 + k / 2 for k in range(120)]
table = {
    "hospital": ["berlin", "bonn"] * 60,
    "age": ages,
    "ward": ["surgery", "internal", "internal"] * 40,
    "outcome": ["yes" if age > 50 else "no" for age in ages],
}
fed = glocal.federation(table, y="outcome", clients="hospital", seed=0)
run = glocal.fit("ditto", fed, model="logistic", rounds=10, baseline="none")

model = run.client_model("berlin")
new = {"age": [33, 71], "ward": ["internal", None]}  # a gap is filled in
print("predicted:", model.predict(new), "of", model.classes)
print("probabilities:", model.predict_proba(new).round(2).tolist())

with tempfile.TemporaryDirectory() as name:
    folder = Path(name) / "model"
    export(model, folder, "torch")  # weights, preprocessing, and a program for other places
    print("files:", ", ".join(sorted(file.name for file in folder.iterdir())))
    print("read again:", glocal.load_model(folder).predict(new))
    program = torch.export.load(folder / "model.pt2").module()
    assert model.preprocessing is not None
    inputs = torch.as_tensor(model.preprocessing.apply(new))
    print("elsewhere:", program(inputs).detach().double().numpy().round(2).tolist())
