"""Recordings in folders, as spectra of a fixed length: ``.wav`` files by class or by speaker.

Folders are arranged as :mod:`glocal.data.folders.layout` says, with a speaker for the client. In
Speech Commands (Warden, 2018) the speaker is in the file's name, ``class/SPEAKER_nohash_0.wav``.

A recording is cut at ``seconds``, or padded with silence, and becomes a picture ``[1, bands,
frames]``: the power in windows of 25 ms (Hann), one every 10 ms, as the logarithm of ``bands`` mel
bands (``log-mel``) or of all frequencies (``spectrogram``).
"""

from __future__ import annotations

import math
import wave
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glocal.core.errors import GlocalError, shown
from glocal.core.validation import integer, real
from glocal.data.datasets import Source
from glocal.data.folders import layout, source
from glocal.data.folders.layout import Placed
from glocal.data.validation import Array

ENDINGS = (".wav",)
SPEAKER = "_nohash_"
"""What follows the speaker in the names of Speech Commands' files."""

WINDOW, HOP = 0.025, 0.01
"""Seconds of a window, and from one to the next."""

SILENCE = 1e-6
"""Added to powers before their logarithm."""

KINDS = ("log-mel", "spectrogram")


def audio(folder: str, features: str = "log-mel", seconds: float = 1.0, bands: int = 40) -> Source:
    """Recordings (.wav) by class, or by speaker and class, in a folder: spectra of a fixed length.

    Args:
        folder: the outermost one.
        features: ``log-mel``, or ``spectrogram`` (all frequencies).
        seconds: of each recording; longer ones are cut, shorter ones padded.
        bands: mel bands of log-mel.
    """
    if features not in KINDS:
        raise GlocalError(f"features={shown(features)} of audio should be {' or '.join(KINDS)}.")
    if not 0.1 <= real(seconds, "seconds of audio") <= 60:
        raise GlocalError(f"seconds of audio should be from 0.1 to 60, not {seconds:g}.")
    integer(bands, "bands of audio", 1, 200)
    found = layout.placed(layout.root_of(folder, "recordings"), ENDINGS, "recordings")
    waves: list[Array] = []
    rate = 0
    for each in found:
        values, own_rate = samples(each.path)
        if rate and own_rate != rate:
            raise GlocalError(
                f"{layout.named(each.path)} has {own_rate} samples a second and "
                f"{layout.named(found[0].path)} has {rate}: convert all to one rate."
            )
        rate = own_rate
        fixed = np.zeros(round(seconds * rate), np.float32)
        fixed[: len(values)] = values[: len(fixed)]
        waves.append(fixed)
    spectra = [power(torch.from_numpy(each), rate) for each in waves]
    if features == "log-mel":
        filters = mel_filters(bands, spectra[0].shape[0], rate)
        spectra = [filters @ each for each in spectra]
    x = torch.stack(spectra)[:, None].add(SILENCE).log().numpy()
    return source.of(x, [_with_speaker(each) for each in found], "recordings")


def samples(path: Path) -> tuple[Array, int]:
    """A recording from −1 to 1, the mean of its channels, and its samples a second."""
    try:
        with wave.open(str(path), "rb") as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            content = file.readframes(file.getnframes())
        values = _decoded(content, width).reshape(-1, channels).mean(1)
    except (wave.Error, EOFError, OSError, ValueError):
        raise GlocalError(
            f"{layout.named(path)} is not a readable .wav file of 8, 16 or 32 bits (PCM): convert "
            "it."
        ) from None
    if not len(values):
        raise GlocalError(f"{layout.named(path)} has no samples: leave it out.")
    return values.astype(np.float32), rate


def _decoded(content: bytes, width: int) -> Array:
    if width == 1:  # without a sign, as the format has it
        return (np.frombuffer(content, np.uint8).astype(np.float32) - 128) / 128
    if width not in (2, 4):
        raise ValueError("another width")
    kind = np.dtype(f"<i{width}")
    return np.frombuffer(content, kind).astype(np.float32) / 2.0 ** (8 * width - 1)


def power(wave: Tensor, rate: int) -> Tensor:
    """The power of each frequency in each window: [frequencies, frames]."""
    window = round(WINDOW * rate)
    size = 2 ** math.ceil(math.log2(window))
    spectrum = torch.stft(
        wave,
        n_fft=size,
        hop_length=round(HOP * rate),
        win_length=window,
        window=torch.hann_window(window),
        center=True,
        pad_mode="constant",
        return_complex=True,
    )
    return spectrum.abs().square()


def mel_filters(bands: int, frequencies: int, rate: int) -> Tensor:
    """Triangles that are evenly spaced in mel, 2595 log₁₀(1 + f/700): [bands, frequencies]."""
    top = 2595 * math.log10(1 + rate / 2 / 700)
    mel = torch.linspace(0, top, bands + 2, dtype=torch.float64)
    corners = 700 * (10 ** (mel / 2595) - 1)
    at = torch.linspace(0, rate / 2, frequencies, dtype=torch.float64)
    low, middle, high = (corners[i : i + bands, None] for i in range(3))
    rising, falling = (at - low) / (middle - low), (high - at) / (high - middle)
    return torch.minimum(rising, falling).clamp(min=0).float()


def _with_speaker(each: Placed) -> Placed:
    speaker, found, _ = each.path.name.partition(SPEAKER)
    return replace(each, client=speaker) if found and each.client is None else each
