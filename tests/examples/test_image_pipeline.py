"""The image pipeline, with real pictures."""

from __future__ import annotations

import asyncio

import pytest
from examples import image_pipeline
from examples.image_pipeline import make_versions, make_versions_of_all
from PIL import Image, ImageStat, UnidentifiedImageError

from ephemerals import WorkCoordinator

ORIENTATION, COPYRIGHT = 0x0112, 0x8298
SMALL = {"thumb": (150, 150), "medium": (300, 200)}


def picture(path, size=(600, 400), color="red", *, orientation=None, mode="RGB", **options):
    image = Image.new(mode, size, color)
    image.paste("blue", (0, 0, size[0] // 4, size[1] // 4))  # the upper left corner
    exif = Image.Exif()
    exif[0x010F] = "a camera"
    if orientation is not None:
        exif[ORIENTATION] = orientation
    image.save(path, exif=exif, **options)
    return path


def opened(path):
    with Image.open(path) as image:
        image.load()
        return image


def near(pixel, color, within=40):
    return all(abs(one - other) <= within for one, other in zip(pixel, color, strict=True))


def test_versions_fit_their_box_and_keep_the_shape(tmp_path):
    assert make_versions(picture(tmp_path / "a.jpg"), tmp_path / "out", sizes=SMALL) == ["thumb", "medium"]
    assert opened(tmp_path / "out/a_thumb.jpg").size == (150, 100)
    assert opened(tmp_path / "out/a_medium.jpg").size == (300, 200)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a_medium.jpg", "a_thumb.jpg"]


def test_a_small_picture_is_not_enlarged(tmp_path):
    make_versions(picture(tmp_path / "a.png", (40, 20)), tmp_path, sizes=SMALL)
    assert opened(tmp_path / "a_medium.jpg").size == (40, 20)


@pytest.mark.parametrize(
    ("orientation", "size", "corner"),
    [(1, (150, 100), (5, 5)), (3, (150, 100), (145, 95)), (6, (100, 150), (95, 5)), (8, (100, 150), (5, 145))],
)
def test_versions_are_upright_and_do_not_ask_to_be_turned_again(tmp_path, orientation, size, corner):
    make_versions(picture(tmp_path / "a.jpg", orientation=orientation), tmp_path, sizes=SMALL, rights="CC0")
    made = opened(tmp_path / "a_thumb.jpg")
    assert made.size == size
    assert near(made.getpixel(corner), (0, 0, 255))
    exif = made.getexif()
    assert exif.get(ORIENTATION, 1) == 1
    assert (exif[COPYRIGHT], exif[0x010F]) == ("CC0", "a camera")


def test_what_is_transparent_becomes_white(tmp_path):
    image = Image.new("RGBA", (200, 100), (255, 0, 0, 0))
    image.save(tmp_path / "a.png")
    make_versions(tmp_path / "a.png", tmp_path, sizes=SMALL)
    assert near(opened(tmp_path / "a_thumb.jpg").getpixel((75, 30)), (255, 255, 255), 3)


@pytest.mark.parametrize("text", ["(c) me", "a text that is far too long for such a narrow picture " * 3])
def test_the_watermark_is_at_the_bottom_and_within_the_picture(tmp_path, text):
    source = Image.new("RGB", (400, 300), "black")
    source.save(tmp_path / "a.png")
    make_versions(tmp_path / "a.png", tmp_path, sizes={"large": (400, 300)}, watermark=text)
    made = opened(tmp_path / "a_large.jpg").convert("L")
    assert ImageStat.Stat(made.crop((0, 0, 400, 200))).extrema[0][1] < 30  # nothing above
    assert ImageStat.Stat(made.crop((0, 200, 400, 300))).extrema[0][1] > 60
    for edge in ((0, 200, 4, 300), (396, 200, 400, 300), (0, 297, 400, 300)):
        assert ImageStat.Stat(made.crop(edge)).extrema[0][1] < 30


def test_a_picture_that_is_too_large_is_refused_by_its_header(tmp_path, monkeypatch):
    source = picture(tmp_path / "a.png")
    monkeypatch.setattr(image_pipeline, "LARGEST", 600 * 400 - 1)
    monkeypatch.setattr(Image.Image, "load", lambda _: pytest.fail("it was decoded"))
    with pytest.raises(ValueError, match="600 x 400 pixels are more than"):
        make_versions(source, tmp_path)


@pytest.mark.real_loop
async def test_failures_are_in_the_report_and_stop_nothing(tmp_path):
    (tmp_path / "b.jpg").write_bytes(b"no picture")
    sources = [picture(tmp_path / "a.jpg"), tmp_path / "b.jpg", tmp_path / "missing.jpg", picture(tmp_path / "c.png")]
    report = await make_versions_of_all(sources, tmp_path / "out", sizes=SMALL, at_once=2)
    assert (report.completed, report.failed) == (2, 2)
    assert {failure.key: failure.error.type for failure in report.failures} == {
        "b": "PIL.UnidentifiedImageError",
        "missing": "FileNotFoundError",
    }
    assert sorted(path.name for path in (tmp_path / "out").glob("*_thumb.jpg")) == ["a_thumb.jpg", "c_thumb.jpg"]
    with pytest.raises(UnidentifiedImageError):
        make_versions(tmp_path / "b.jpg", tmp_path)


@pytest.mark.real_loop
async def test_a_picture_that_is_no_longer_wanted_is_left_in_the_middle_and_the_others_go_on(tmp_path, monkeypatch):
    loop, saving, made = asyncio.get_running_loop(), asyncio.Event(), {}
    real = image_pipeline.save

    def save(image, path, exif):
        real(image, path, exif)
        if path.name == "a_thumb.jpg":
            loop.call_soon_threadsafe(saving.set)
            while not operations["a"].stop_requested:
                pass

    monkeypatch.setattr(image_pipeline, "save", save)
    operations = {}

    def body(source, operation):
        made[source.stem] = make_versions(source, tmp_path / "out", sizes=SMALL, operation=operation)

    async with WorkCoordinator(body, max_concurrency=1) as coordinator:
        for name in "ab":
            operations[name] = await coordinator.enqueue(picture(tmp_path / f"{name}.jpg"))
        await saving.wait()
        operations["a"].cancel()
        await coordinator.join()
    assert made == {"a": ["thumb"], "b": ["thumb", "medium"]}


def test_a_version_that_cannot_be_saved_leaves_no_half_file(tmp_path, monkeypatch):
    def fail(self, path, *_, **__):
        path.write_bytes(b"half")
        raise OSError("no space left")

    source = picture(tmp_path / "a.jpg")
    monkeypatch.setattr(Image.Image, "save", fail)
    with pytest.raises(OSError, match="no space"):
        make_versions(source, tmp_path / "out", sizes=SMALL)
    assert list((tmp_path / "out").iterdir()) == []
