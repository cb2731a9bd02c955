"""What ``run``, ``compare`` and ``resume`` do: train, show, and keep every method in a folder."""

from __future__ import annotations

import sys
import tomllib
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from glocal.core.errors import ClientError, GlocalError, Interrupted, NoRoomError

if TYPE_CHECKING:
    from glocal.data.federation import Federation
    from glocal.experiment.fit import Run
    from glocal.runs.folder import Folder
    from glocal.runs.settings import Settings
    from glocal.runs.tracking import Tracker
    from glocal.training.checkpoint import Keeping


@dataclass(frozen=True)
class Job:
    """Methods to train on one federation, and the folder of each."""

    root: Path
    folders: dict[str, Path]
    settings: Settings
    one: bool
    """Whether it is a single run, whose folder is the root itself."""
    against: str | None = None
    choose: bool = False
    named: bool = True
    """Whether the user chose the folder."""
    again: bool = False
    """Whether it is taken up again."""

    @property
    def specs(self) -> list[str]:
        """The methods."""
        return list(self.folders)

    def about(self) -> dict[str, Any]:
        """A comparison as its file tells it."""
        return {
            "methods": self.specs,
            "folders": [path.name for path in self.folders.values()],
            "choose": self.choose,
            **({"against": self.against} if self.against is not None else {}),
        }


def new(
    specs: list[str],
    settings: Settings,
    out: Path | None,
    kind: str,
    against: str | None = None,
    choose: bool = False,
) -> Job:
    """A job that begins."""
    from glocal.methods import resolve
    from glocal.runs import folder as runs

    for spec in specs:
        resolve(spec)
    one = kind == "run"
    root = out or runs.fresh_name(kind if len(specs) > 1 else runs.slug(specs[0]))
    folders: dict[str, Path] = {}
    for spec in specs:
        path, n = root if one else root / runs.slug(spec), 1
        while path in folders.values():
            n += 1
            path = root / f"{runs.slug(spec)}-{n}"
        folders[spec] = path
    return Job(root, folders, settings, one, against, choose, out is not None)


def left_off(folder: Path) -> Job:
    """The job that was left off in a folder."""
    from glocal.runs import folder as runs
    from glocal.runs.settings import read

    if not folder.is_dir():
        raise GlocalError(f"there is no folder {folder}: check its name.")
    if (folder / runs.COMPARISON).is_file():
        return _comparison(folder)
    if not (folder / "settings.toml").is_file():
        raise GlocalError(
            f"there is no run in {folder}: give a folder that 'glocal run' or 'glocal compare' has "
            "made."
        )
    if (folder.parent / runs.COMPARISON).is_file() and runs.unfinished(folder.parent):
        raise GlocalError(
            f"the run in {folder} is part of a comparison: go on with 'glocal resume "
            f"{folder.parent}'."
        )
    method, settings = read(folder / "settings.toml")
    return Job(folder, {method: folder}, settings, one=True, again=True)


def _comparison(folder: Path) -> Job:
    from glocal.runs import folder as runs
    from glocal.runs.settings import from_mapping

    file = folder / runs.COMPARISON
    try:
        about = tomllib.loads(file.read_text(encoding="utf-8"))
        names = about["folders"]
        if any(not runs.plain_name(name) for name in names):
            raise ValueError("folders")
        folders = {
            str(spec): folder / name for spec, name in zip(about["methods"], names, strict=True)
        }
        settings = from_mapping(about["settings"])
        against, choose = about.get("against"), bool(about["choose"])
        if not folders or not (against is None or against in folders):
            raise ValueError("methods")
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, GlocalError):
            raise
        raise GlocalError(
            f"{file} is damaged ({type(error).__name__}: {error}): compare anew into another "
            "folder."
        ) from error
    return Job(folder, folders, settings, False, against, choose, again=True)


def train(job: Job, json: Path | None) -> None:
    """Train all methods of a job, or what is left to train, show them, and write their files."""
    from glocal.cli.app import check_json
    from glocal.core import files
    from glocal.evaluation import summary as results
    from glocal.experiment import result_files
    from glocal.experiment.choice import CHOICE, choice
    from glocal.report.tables import show_clients, show_comparison
    from glocal.runs import folder as runs
    from glocal.runs import locks, tracking
    from glocal.training.checkpoint import Keeping

    check_json(json)
    tracking.check(job.settings.track)
    try:
        fed = job.settings.federation()
    except GlocalError as error:
        if not job.again:
            raise
        raise GlocalError(
            f"{str(error).rstrip('.')} (paths are as seen from where the run was started)."
        ) from error
    if job.again:
        _check_data(job, fed)
    root, settings = job.root, job.settings
    shared = root / runs.CHECKPOINTS
    keeping = {
        spec: Keeping(
            path / runs.CHECKPOINTS,
            settings.checkpoint_every,
            settings.keep_checkpoints,
            alone=shared,
        )
        for spec, path in job.folders.items()
    }
    with ExitStack() as held:
        try:
            if not job.one:
                if not job.again:
                    runs.prepare(root)
                held.enter_context(locks.hold(root))
                if not job.again:
                    runs.refuse_taken(root)
                if not job.again or _changed(job):
                    about = {**job.about(), "settings": settings.as_toml()}
                    files.write(root / runs.COMPARISON, files.toml(about).encode())
            done = _trained(job, fed, keeping)
        finally:
            _tidy(job)
        if job.choose or settings.adapt is not None:
            done[CHOICE] = choice(done, fed)
        if job.against is not None:
            for run in done.values():
                versus = results.against(run.summary, done[job.against].summary)
                run.summary["against"] = {job.against: versus}
        everything = files.dump(result_files.result(done))
        if not job.one:
            files.write(root / "result.json", everything)
        for folder in dict.fromkeys([*job.folders.values(), root]):
            runs.clear(folder)
    if json is not None and str(json) == "-":
        sys.stdout.write(everything.decode())
        return
    if json is not None:
        files.write(json, everything)
    if job.one:
        show_clients(done[job.specs[0]])
    show_comparison(done, fed, job.against)
    typer.echo(f"Run folder: {root}")


def _trained(job: Job, fed: Federation, keeping: dict[str, Keeping]) -> dict[str, Run]:
    """All runs, each written to its folder as soon as it is done."""
    from glocal.core import interrupts
    from glocal.core.progress import reporter
    from glocal.runs import folder as runs
    from glocal.runs import tracking
    from glocal.runs.parallel import train_all

    done: dict[str, Run] = {}
    folders: dict[str, Folder] = {}
    trackers: dict[str, Tracker] = {}
    try:
        with interrupts.graceful(), reporter(None) as report, ExitStack() as opened:
            for spec, path in job.folders.items():
                folder = runs.Folder(path, spec, job.settings, fed, again=job.again)
                folders[spec] = opened.enter_context(folder)
                title = spec if job.one else f"{job.root.name}: {spec}"
                about = {"method": spec, **job.settings.as_toml()}
                tracker = tracking.open_trackers(job.settings.track, path, title, about)
                trackers[spec] = opened.enter_context(tracker)

            if job.again and not runs.unfinished(job.root):
                raise GlocalError(f"the run in {job.root} was finished by somebody else just now.")

            def on_line(spec: str, line: dict[str, Any]) -> None:
                folders[spec].line(line)
                trackers[spec].line(line)

            training = train_all(job.specs, job.settings, fed, report, on_line, keeping=keeping)
            for spec, finished in training:
                done[spec] = finished
                folders[spec].finish(finished)
                trackers[spec].finish(finished.summary, finished.clients)
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
        if not _began(job, folders):
            raise Interrupted(
                "stopped before anything was trained.", interrupts.exit_code()
            ) from error
        raise Interrupted(
            f"stopped; go on with: glocal resume {job.root}", interrupts.exit_code()
        ) from error
    finally:
        if not _began(job, folders) and not done:
            for folder in folders.values():
                folder.discard()
    return done


def _began(job: Job, folders: dict[str, Folder]) -> bool:
    from glocal.runs import folder as runs

    shared = (job.root / runs.CHECKPOINTS).rglob("*.safetensors")
    return any(folder.began for folder in folders.values()) or any(shared)


def _tidy(job: Job) -> None:
    """Folders made for a job that could not begin go; one that the user named stays theirs."""
    from glocal.runs import folder as runs
    from glocal.runs import locks

    root = job.root
    inside = {p.name for p in root.iterdir()} if root.is_dir() else set()
    if not job.again and inside <= {runs.COMPARISON, locks.NAME}:
        for name in inside:
            (root / name).unlink()
        for made in (root,) if job.named else (root, root.parent):
            with suppress(OSError):  # not empty, or not there
                made.rmdir()


def _check_data(job: Job, fed: Federation) -> None:
    """Refuse to go on with other data than the run began with; say so if other versions run."""
    from glocal.core.progress import print_note
    from glocal.experiment import result_files
    from glocal.runs import folder as runs
    from glocal.runs.settings import read

    told = False
    for spec, path in job.folders.items():
        file = path / "settings.toml"
        if not file.is_file():
            continue
        method, settings = read(file)
        try:
            facts = tomllib.loads(file.read_text(encoding="utf-8"))
            then = facts["federation"]["fingerprint"]
            versions = dict(facts["versions"])
        except (ValueError, KeyError, TypeError) as error:
            raise GlocalError(
                f"{file} is damaged ({type(error).__name__}: {error}): train anew into another "
                "folder."
            ) from error
        free = {name: getattr(job.settings, name) for name in runs.MAY_CHANGE}
        if method != spec or replace(settings, **free) != job.settings:
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
            raise GlocalError(
                f"the data of {path} has changed since (its fingerprint was {str(then)[:16]} and "
                f"is {fed.fingerprint[:16]} now): give it the old data back, or train anew."
            )
        now = runs.versions()
        other = [f"{k} {versions[k]} → {v}" for k, v in now.items() if versions.get(k, v) != v]
        if other and not told:
            told = True
            print_note(
                f"this is not what the run began with ({', '.join(other)}): the last bits may "
                "come out otherwise."
            )


def resumed(folder: Path, jobs: int | None, diverged: str | None) -> Job | None:
    """The job to go on with, changed where that changes no result so far; none if it is over."""
    from glocal.runs import folder as runs
    from glocal.runs import locks
    from glocal.training.divergence import check_policy

    job = left_off(folder)
    if locks.held(job.root):
        raise GlocalError(
            f"another process is writing to {folder}: wait until it ends, or stop it first."
        )
    if not runs.unfinished(job.root):
        for path in dict.fromkeys([*job.folders.values(), job.root]):
            runs.clear(path)
        return None
    settings = job.settings
    if jobs is not None:
        settings = replace(settings, jobs=jobs)
    if diverged is not None:
        check_policy(diverged)
        settings = replace(settings, diverged=diverged)
    return replace(job, settings=settings)


def _changed(job: Job) -> bool:
    """Whether what may change of a comparison's settings has changed."""
    return _comparison(job.root).settings != job.settings
