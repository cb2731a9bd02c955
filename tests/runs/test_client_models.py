"""Every client's model comes back from a run folder, without data and without its method."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

import glocal
from glocal.core.errors import GlocalError
from glocal.experiment import model_files
from glocal.runs.client_models import client_model
from glocal.testing import ragged

QUICK = {"model": "mlp(4)", "rounds": 2, "fraction": 0.5, "baseline": "none"}


@pytest.fixture(scope="module")
def fed() -> glocal.Federation:
    return ragged()


def same_models(run: glocal.Run, folder: Path, **more: object) -> None:
    """The models in the folder are those of the run, for clients who took part and who did not."""
    x = torch.randn(7, *run.description.input_shape)  # type: ignore[union-attr]
    for row in run.clients:
        name = str(row["client"])
        found = client_model(folder, name, **more)  # type: ignore[arg-type]
        assert found.name == name
        assert torch.equal(found.logits(x), run.client_model(name).logits(x))
        assert found.description == run.client_model(name).description


@pytest.mark.parametrize(
    ("spec", "stored"),
    [
        ("fedavg", False),
        ("scaffold", False),
        ("ditto", False),
        ("fedper", False),
        ("apfl", True),
        ("superfed-mm", True),
    ],
)
def test_each_weight_is_written_once(
    fed: glocal.Federation, tmp_path: Path, spec: str, stored: bool
) -> None:
    """Only a mix of two models is written beside the two."""
    run = glocal.fit(spec, fed, **QUICK)
    run.save(tmp_path / "r")
    assert (tmp_path / "r" / model_files.WEIGHTS).is_file() == stored
    same_models(run, tmp_path / "r")


@pytest.mark.parametrize(("states", "part"), [("device", 1), ("disk", 1), ("device", 1 << 28)])
def test_clients_are_looked_at_in_parts(
    fed: glocal.Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: str, part: int
) -> None:
    """Of six clients one took part, and it is not the first."""
    run = glocal.fit("ditto", fed, **{**QUICK, "fraction": 0.1, "rounds": 1}, states=states)
    assert len(run.states["ids"]) == 1
    assert run.states["ids"] > 0
    monkeypatch.setattr("glocal.evaluation.evaluate.CHUNK_BYTES", part)
    run.save(tmp_path / "r")
    assert not (tmp_path / "r" / model_files.WEIGHTS).exists()
    same_models(run, tmp_path / "r")


@pytest.mark.parametrize("states", ["device", "disk"])
def test_models_of_clients_alone(fed: glocal.Federation, tmp_path: Path, states: str) -> None:
    run = glocal.fit("local(lr=0.1, max_epochs=1)", fed, model="mlp(4)", states=states)
    run.save(tmp_path / "r")
    assert not (tmp_path / "r" / model_files.WEIGHTS).exists()
    same_models(run, tmp_path / "r")


class Net(nn.Module):
    """Tied weights, a frozen layer and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.again = nn.Linear(6, 6)
        self.again.weight = self.first.weight
        self.frozen, self.last = nn.Linear(6, 6), nn.Linear(6, 3)
        self.frozen.requires_grad_(False)
        self.register_buffer("scale", torch.rand(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        hidden = self.frozen(self.again(self.first(x).relu())) * self.scale
        return self.last(hidden)  # type: ignore[no-any-return]


def test_an_own_model_with_parts_that_are_not_trained(
    fed: glocal.Federation, tmp_path: Path
) -> None:
    run = glocal.fit("fedper", fed, **{**QUICK, "model": Net()})
    run.save(tmp_path / "r")
    same_models(run, tmp_path / "r", module=Net)
    with pytest.raises(GlocalError, match="an own model"):
        client_model(tmp_path / "r", str(run.clients[0]["client"]))
    with pytest.raises(GlocalError, match="do not fit the model Linear"):
        client_model(tmp_path / "r", str(run.clients[0]["client"]), module=nn.Linear(6, 3))


def test_of_a_comparison_one_method_is_named(fed: glocal.Federation, tmp_path: Path) -> None:
    both = glocal.compare(["fedavg", "ditto"], fed, **QUICK, repeats=2, tune=False)
    both.save(tmp_path / "c")
    for method in both:
        same_models(both[method], tmp_path / "c", method=method)
    with pytest.raises(GlocalError, match="say which by --method, one of"):
        client_model(tmp_path / "c", "0")
    shutil.copytree(tmp_path / "c/2-ditto", tmp_path / "c/again")
    with pytest.raises(GlocalError, match="several runs of ditto in"):
        client_model(tmp_path / "c", "0", method="ditto")
    same_models(both["fedavg"], tmp_path / "c", method="fedavg")
    with pytest.raises(GlocalError, match="holds several comparisons: give the folder of one, su"):
        client_model(tmp_path, "0")
    with pytest.raises(GlocalError, match="unknown method 'dito': did you mean 'ditto'"):
        client_model(tmp_path / "c", "0", method="dito")


def test_models_too_large_to_be_written_again_are_built_from_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: object
) -> None:
    monkeypatch.setattr(model_files, "MOST_BYTES", 0)
    words = (
        "run apfl --clients 4 --partition iid --model mlp(4) --rounds 1 --baseline none --jobs 1"
    )
    assert command(*words.split(), "--out", "r")[0] == 0  # type: ignore[operator]
    assert not Path("r", model_files.WEIGHTS).exists()
    fed = glocal.load("digits", clients=4, partition="iid")
    run = glocal.fit("apfl", fed, model="mlp(4)", rounds=1, baseline="none")
    x = fed[2].test[0]
    found, expected = client_model(Path("r"), "2"), run.client_model("2")
    torch.testing.assert_close(found.logits(x), expected.logits(x))
    assert command("resume", "r")[0] == 0  # type: ignore[operator]
    Path("r/final.safetensors").write_bytes(b"something else")
    code, _, said = command("resume", "r")  # type: ignore[operator]
    assert code == 2
    assert "r/final.safetensors is damaged or another than was written" in said


def test_a_file_that_is_not_the_one_written_is_refused(
    fed: glocal.Federation, tmp_path: Path
) -> None:
    run, folder = glocal.fit("apfl", fed, **QUICK), tmp_path / "r"
    run.save(folder)
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True)
    assert done.returncode == 0
    name = str(run.clients[0]["client"])
    files = {path: path.read_bytes() for path in folder.iterdir()}
    checked = [path for path in files if path.suffix == ".safetensors" or path.stem == "models"]
    assert len(checked) == 4
    for path in checked:
        content = bytearray(files[path])
        content[-9] ^= 1
        path.write_bytes(content)
        with pytest.raises(GlocalError, match=f"{path.name} is damaged"):
            client_model(folder, name)
        path.write_bytes(files[path])
    (folder / model_files.WEIGHTS).unlink()
    with pytest.raises(GlocalError, match=r"is not whole, as it has no models\.safetensors"):
        client_model(folder, name)
    for content in (b"nothing", b"\xff"):
        (folder / "SHA256SUMS").write_bytes(content)
        with pytest.raises(GlocalError, match="SHA256SUMS"):
            client_model(folder, name)


def test_folders_without_models_say_so(fed: glocal.Federation, tmp_path: Path) -> None:
    with pytest.raises(GlocalError, match="there is no folder"):
        client_model(tmp_path / "r", "0")
    (tmp_path / "r").mkdir()
    with pytest.raises(GlocalError, match="there are no clients' models in"):
        client_model(tmp_path / "r", "0")
    (tmp_path / "r/settings.toml").write_text("")
    with pytest.raises(GlocalError, match="did not finish: go on with 'glocal resume"):
        client_model(tmp_path / "r", "0")
    run = glocal.fit("fedavg", fed, **QUICK)
    run.save(tmp_path / "s")
    (tmp_path / "s/result.json").unlink()  # it is written last
    with pytest.raises(GlocalError, match="did not finish"):
        client_model(tmp_path / "s", str(run.clients[0]["client"]))
