"""Methods trained into run folders: begun, resumed, and put away when they are done."""

from __future__ import annotations

import tomllib
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glocal.core import checksums, files, interrupts, locks
from glocal.core.errors import ClientError, GlocalError, Interrupted, NoRoomError
from glocal.core.progress import print_note, reporter
from glocal.data.federation import Federation
from glocal.data.schema import needs_classes
from glocal.experiment import result_files
from glocal.experiment.choice import check_choice
from glocal.experiment.config import Config
from glocal.experiment.config_reading import from_mapping
from glocal.experiment.fit import concluded, train_all
from glocal.experiment.goal import recording
from glocal.experiment.run import Run
from glocal.experiment.runner import Callbacks
from glocal.methods import resolve
from glocal.runs import folder as run_folder
from glocal.runs import tracking
from glocal.runs.same_data import changed, from_elsewhere
from glocal.runs.settings import read
from glocal.training.checkpoint import CheckpointPolicy


@dataclass(frozen=True)
class Job:
    """Methods to train on one federation, and the folder of each."""

    root: Path
    folders: dict[str, Path]
    config: Config
    one: bool
    """Whether it is a single run, whose folder is the root itself."""
    against: str | None = None
    choose: bool = False
    goal: float | None = None
    named: bool = True
    """Whether the user chose the folder."""
    again: bool = False
    """Whether it is resumed."""


def new(
    specs: list[str],
    config: Config,
    out: Path | None,
    kind: str,
    against: str | None = None,
    choose: bool = False,
    goal: float | None = None,
) -> Job:
    """A job that begins."""
    for spec in specs:
        resolve(spec)
    check_choice({spec: spec for spec in specs}, config, choose=choose)
    one = kind == "run"
    root = out or run_folder.fresh_name(kind if len(specs) > 1 else result_files.slug(specs[0]))
    folders: dict[str, Path] = {}
    for spec in specs:
        path, n = root if one else root / result_files.slug(spec), 1
        while path in folders.values():
            n += 1
            path = root / f"{result_files.slug(spec)}-{n}"
        folders[spec] = path
    return Job(root, folders, config, one, against, choose, goal, out is not None)


def left_off(folder: Path) -> Job:
    """The job that was left off in a folder."""
    if not folder.is_dir():
        raise GlocalError(f"there is no folder {folder}: check its name.")
    if (folder / run_folder.COMPARISON).is_file():
        return _comparison(folder)
    if not (folder / "settings.toml").is_file():
        raise GlocalError(
            f"there is no run in {folder}: give a folder that 'glocal run' or 'glocal compare' has "
            "made."
        )
    if (folder.parent / run_folder.COMPARISON).is_file() and run_folder.unfinished(folder.parent):
        raise GlocalError(
            f"the run in {folder} is part of a comparison: go on with 'glocal resume "
            f"{folder.parent}'."
        )
    method, config = read(folder / "settings.toml")
    return Job(folder, {method: folder}, config, one=True, again=True)


def _comparison(folder: Path) -> Job:
    file = folder / run_folder.COMPARISON
    try:
        about = tomllib.loads(file.read_text(encoding="utf-8"))
        names = about["folders"]
        if any(name in ("", ".", "..") or Path(name).name != name for name in names):
            raise ValueError("folders")  # they name something outside
        folders = {
            str(spec): folder / name for spec, name in zip(about["methods"], names, strict=True)
        }
        config = from_mapping(about["settings"])
        against, choose, goal = about.get("against"), bool(about["choose"]), about.get("goal")
        if not folders or not (against is None or against in folders):
            raise ValueError("methods")
        recording(config, goal)
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, GlocalError):
            raise
        raise GlocalError(
            f"{file} is damaged ({type(error).__name__}: {error}): compare anew into another "
            "folder."
        ) from error
    return Job(folder, folders, config, False, against, choose, goal, again=True)


def train(job: Job, loaded: Federation | None = None) -> tuple[dict[str, Run], Federation]:
    """Train all methods of a job, or what is left to train, and write their files.

    The data is what was ``loaded`` by the job's settings already, or is loaded now.
    """
    tracking.check(job.config.track)
    try:
        fed = job.config.federation() if loaded is None else loaded
        if job.goal is not None:
            needs_classes(fed, "a goal")
    except GlocalError as error:
        if not job.again:
            raise
        raise from_elsewhere(error) from error
    if job.again:
        _check_data(job, fed)
    root, config = job.root, job.config
    shared = root / run_folder.CHECKPOINTS
    checkpoints = {
        spec: CheckpointPolicy(
            path / run_folder.CHECKPOINTS,
            config.checkpoint_every,
            config.keep_checkpoints,
            baseline=shared,
        )
        for spec, path in job.folders.items()
    }
    with ExitStack() as held:
        try:
            if not job.one:
                if not job.again:
                    run_folder.prepare(root)
                held.enter_context(locks.hold(root))
                if not job.again:
                    run_folder.refuse_taken(root)
                if not job.again or _comparison(root).config != config:
                    about = {
                        "methods": list(job.folders),
                        "folders": [path.name for path in job.folders.values()],
                        "choose": job.choose,
                        "against": job.against,
                        "goal": job.goal,
                        "settings": config.as_toml(),
                    }
                    files.write(root / run_folder.COMPARISON, files.toml(about).encode())
            done = _trained(job, fed, checkpoints)
        finally:
            _tidy(job)
        done = concluded(done, fed, config, job.against, job.choose, job.goal)
        if not job.one:
            files.write(root / "result.json", files.dump(result_files.result(done)))
        for folder in dict.fromkeys([*job.folders.values(), root]):
            run_folder.clear(folder)
    return done, fed


def _trained(job: Job, fed: Federation, checkpoints: dict[str, CheckpointPolicy]) -> dict[str, Run]:
    """All runs, each written to its folder as soon as it is done."""
    done: dict[str, Run] = {}
    folders: dict[str, run_folder.Folder] = {}
    try:
        with interrupts.graceful(), reporter(None) as report, ExitStack() as opened:
            for spec, path in job.folders.items():
                title = spec if job.one else f"{job.root.name}: {spec}"
                folder = run_folder.Folder(path, spec, job.config, fed, title, again=job.again)
                folders[spec] = opened.enter_context(folder)

            if job.again and not run_folder.unfinished(job.root):
                raise GlocalError(f"the run in {job.root} was finished by somebody else just now.")
            told = Callbacks(report, lambda spec, line: folders[spec].line(line))
            for spec, finished in train_all(
                list(job.folders), job.config, fed, told, checkpoints=checkpoints
            ):
                done[spec] = finished
                folders[spec].finish(finished)
    except GlocalError as error:
        if not _began(job, folders):
            raise
        message = str(error).rstrip(".")
        if isinstance(error, NoRoomError):
            message += f". Then go on with: glocal resume {job.root}"
        elif isinstance(error, ClientError) and "--diverged skip" in message:
            message += f". To go on without it: glocal resume {job.root} --diverged skip"
        else:
            raise
        raise GlocalError(message) from error
    except KeyboardInterrupt as error:
        message = f"stopped; go on with: glocal resume {job.root}"
        if not _began(job, folders):
            message = "stopped before anything was trained."
        raise Interrupted(message, interrupts.exit_code()) from error
    finally:
        if not _began(job, folders) and not done:
            for folder in folders.values():
                folder.discard()
    return done


def _began(job: Job, folders: dict[str, run_folder.Folder]) -> bool:
    shared = (job.root / run_folder.CHECKPOINTS).rglob("*.safetensors")
    return any(folder.began for folder in folders.values()) or any(shared)


def _tidy(job: Job) -> None:
    """Folders made for a job that could not begin go; one that the user named stays theirs."""
    root = job.root
    inside = {p.name for p in root.iterdir()} if root.is_dir() else set()
    if not job.again and inside <= {run_folder.COMPARISON, locks.NAME}:
        for name in inside:
            (root / name).unlink()
        for made in (root,) if job.named else (root, root.parent):
            with suppress(OSError):  # not empty, or not there
                made.rmdir()


def _check_data(job: Job, fed: Federation) -> None:
    """Refuse to go on with other data than the run began with; say so if other versions run."""
    told = False
    for spec, path in job.folders.items():
        file = path / "settings.toml"
        if not file.is_file():
            continue
        method, config = read(file)
        try:
            facts = tomllib.loads(file.read_text(encoding="utf-8"))
            then = facts["federation"]["fingerprint"]
            versions = dict(facts["versions"])
        except (ValueError, KeyError, TypeError) as error:
            raise GlocalError(
                f"{file} is damaged ({type(error).__name__}: {error}): train anew into another "
                "folder."
            ) from error
        free = {name: getattr(job.config, name) for name in run_folder.MAY_CHANGE}
        if method != spec or replace(config, **free) != job.config:
            raise GlocalError(
                f"{file} is not what the comparison began with: give it back its settings, or "
                "compare anew into another folder."
            )
        if versions.get("schema") != str(result_files.SCHEMA):
            raise GlocalError(
                f"the run in {path} was written with schema {versions.get('schema')}, and this "
                f"version goes on with schema {result_files.SCHEMA}: use that version, or train "
                "anew."
            )
        if then != fed.fingerprint:
            raise changed(path, then, fed.fingerprint)
        now = run_folder.versions()
        other = [f"{k} {versions[k]} → {v}" for k, v in now.items() if versions.get(k, v) != v]
        if other and not told:
            told = True
            print_note(
                f"this is not what the run began with ({', '.join(other)}): the last bits may "
                "come out otherwise."
            )


def resumed(folder: Path, jobs: int | None, diverged: str | None) -> Job | None:
    """The job to go on with, changed where that changes no result so far; none if it is over."""
    job = left_off(folder)
    if locks.held(job.root):
        raise GlocalError(
            f"another process is writing to {folder}: wait until it ends, or stop it first."
        )
    if not run_folder.unfinished(job.root):
        for path in job.folders.values():
            if (path / checksums.FILE).is_file():
                checksums.check(path, "put it back, or train anew into another folder")
        for path in dict.fromkeys([*job.folders.values(), job.root]):
            run_folder.clear(path)
        return None
    given = {"jobs": jobs, "diverged": diverged}
    changes: dict[str, Any] = {name: v for name, v in given.items() if v is not None}
    return replace(job, config=replace(job.config, **changes))
