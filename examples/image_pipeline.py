"""Make smaller versions of pictures, upright and with a watermark: `python -m examples.image_pipeline FOLDER PICTURE…`.

Needs Pillow. Each picture is one operation in a thread: opened once, and each version is made from the original and
saved once. What is too large is refused by its header, before it is decoded.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from PIL import Image, ImageDraw, ImageFont, ImageOps

from ephemerals import for_each

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ephemerals import Operation, Report

SIZES: Final = {"thumb": (150, 150), "medium": (800, 600), "large": (1920, 1080)}
LARGEST: Final = 50_000_000
"""Pixels of a picture that is accepted."""

_COPYRIGHT: Final = 0x8298
_PAPER: Final = "white"
_OPACITY: Final = 128


async def make_versions_of_all(  # noqa: PLR0913 - what a version is made of
    pictures: Iterable[Path],
    folder: Path,
    *,
    sizes: Mapping[str, tuple[int, int]] = SIZES,
    watermark: str | None = None,
    rights: str | None = None,
    at_once: int = 3,
) -> Report:
    """Make all versions of all pictures; which ones failed, and why, is in the report, with the name as key."""

    def make(picture: Path, operation: Operation) -> None:
        for name in make_versions(
            picture, folder, sizes=sizes, watermark=watermark, rights=rights, operation=operation
        ):
            operation.emit("image.saved", {"version": name})

    return await for_each(
        pictures, make, key=lambda picture: picture.stem, errors="collect", max_concurrency=at_once
    )  # by key: two pictures of one name would be saved under one name


def make_versions(  # noqa: PLR0913 - what a version is made of
    picture: Path,
    folder: Path,
    *,
    sizes: Mapping[str, tuple[int, int]] = SIZES,
    watermark: str | None = None,
    rights: str | None = None,
    operation: Operation | None = None,
) -> list[str]:
    """Save `NAME_SIZE.jpg` for each size; return the sizes that were made before the operation was asked to stop.

    Raise `ValueError` for a picture of more than `LARGEST` pixels, `PIL.UnidentifiedImageError` for no picture.
    """
    made = []
    folder.mkdir(parents=True, exist_ok=True)
    with Image.open(picture) as opened:
        if opened.width * opened.height > LARGEST:  # known from the header; nothing is decoded yet
            raise ValueError(f"{opened.width} x {opened.height} pixels are more than {LARGEST}")
        upright = flattened(ImageOps.exif_transpose(opened))
        exif = upright.getexif()  # without the orientation, which is no longer wanted
        if rights is not None:
            exif[_COPYRIGHT] = rights
        for name, box in sizes.items():
            if operation is not None and operation.stop_requested:
                break
            version = upright.copy()
            version.thumbnail(box, Image.Resampling.LANCZOS)  # fits the box, and is never enlarged
            if watermark is not None:
                version = watermarked(version, watermark)
            save(version, folder / f"{picture.stem}_{name}.jpg", exif)
            made.append(name)
    return made


def flattened(picture: Image.Image) -> Image.Image:
    """Return a picture without transparency, which JPEG does not have: on white paper."""
    exif = picture.getexif()
    if picture.has_transparency_data:
        layers = picture.convert("RGBA")
        paper = Image.new("RGBA", picture.size, _PAPER)
        paper.alpha_composite(layers)
        picture = paper
    flat = picture.convert("RGB")
    flat.getexif().update(exif)
    return flat


def watermarked(picture: Image.Image, text: str) -> Image.Image:
    """Return a picture with a half-transparent text at the bottom, as large as fits, measured."""
    layer = Image.new("RGBA", picture.size, (255, 255, 255, 0))
    draw = ImageDraw.Draw(layer)
    size = max(8.0, picture.height / 15)
    left, _, right, bottom = draw.textbbox((0, 0), text, font=ImageFont.load_default(size))
    size *= min(1.0, 0.9 * picture.width / (right - left))
    font = ImageFont.load_default(size)
    left, _, right, bottom = draw.textbbox((0, 0), text, font=font)
    margin = picture.height / 30
    place = ((picture.width - right - left) / 2, picture.height - margin - bottom)
    draw.text(place, text, font=font, fill=(255, 255, 255, _OPACITY))
    return Image.alpha_composite(picture.convert("RGBA"), layer).convert("RGB")


def save(picture: Image.Image, path: Path, exif: Image.Exif) -> None:
    """Save a picture whole or not at all: under another name first."""
    partial = path.with_suffix(".part")
    try:
        picture.save(partial, "JPEG", quality=90, exif=exif)
        partial.replace(path)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()


def main() -> None:
    """Make versions of the pictures on the command line."""
    folder, *pictures = map(Path, sys.argv[1:])
    report = asyncio.run(make_versions_of_all(pictures, folder, watermark="ephemerals", rights="CC0"))
    for failure in report.failures:
        print(f"{failure.key} failed: {failure.error}", file=sys.stderr)
    print(f"{report.completed} pictures done, {report.failed} failed")


if __name__ == "__main__":
    main()
