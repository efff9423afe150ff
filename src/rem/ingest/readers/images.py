"""Pictures made ready to be read: one for each page, upright, without colours, no larger than the reading needs."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

import numpy as np
from PIL import Image, ImageOps, ImageSequence, ImageStat, UnidentifiedImageError

_MOST_POINTS = 120_000_000
"""Twice what a sheet of A3 has at 600 dots per inch. One more takes more memory than one file may."""
_SIDE = 4096
"""The parser makes any picture smaller than this, whatever becomes of the letters."""
_LEAST_SLICE = 3072


class ImageError(ValueError):
    """A picture that cannot be read."""


def prepare_pages(data: bytes) -> Iterator[bytes]:
    """The pages of a picture as PNG: all of a TIFF, the first of anything that moves."""
    # The sizes are checked here, with an answer that says what to do.
    Image.MAX_IMAGE_PIXELS = None
    try:
        image = Image.open(BytesIO(data))
    except UnidentifiedImageError:
        raise ImageError("it is damaged, or of a kind that REM does not know: save it as PNG or JPEG") from None
    with image:
        for frame in ImageSequence.Iterator(image):
            _check_size(frame)
            for part in _slices(_upright(frame)):
                yield _png(part)
            if image.format != "TIFF":
                return


def _check_size(image: Image.Image) -> None:
    if image.width * image.height > _MOST_POINTS:
        raise ImageError(
            f"it has {image.width:,} by {image.height:,} points, and REM reads up to {_MOST_POINTS:,}: make it smaller"
        )


def _upright(image: Image.Image) -> Image.Image:
    """In shades of grey, as cameras say that it is to be seen."""
    orientation = image.getexif().get(0x0112)
    grey = _grey(image)
    if orientation:
        grey.getexif()[0x0112] = orientation
        ImageOps.exif_transpose(grey, in_place=True)
    return grey


def _grey(image: Image.Image) -> Image.Image:
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image, "float32")
        values = values - values.min()
        return Image.fromarray((values * (255 / max(values.max(), 1))).astype("uint8"))
    if not image.has_transparency_data:
        return image.convert("L")
    grey, opacity = image.convert("LA").split()
    # Light letters on nothing are meant for a dark ground.
    is_light = opacity.getbbox() is not None and ImageStat.Stat(grey, opacity).mean[0] > 127
    ground = Image.new("L", image.size, 0 if is_light else 255)
    ground.paste(grey, mask=opacity)
    return ground


def _slices(image: Image.Image) -> Iterator[Image.Image]:
    """A long strip, such as the picture of a whole web page, in parts that are cut between lines of text."""
    if image.height <= 2 * image.width or image.height <= _SIDE:
        image.thumbnail((_SIDE, _SIDE))
        yield image
        return
    if image.width > _SIDE:
        image = image.resize((_SIDE, image.height * _SIDE // image.width))
    top = 0
    while image.height - top > _SIDE:
        rows = np.asarray(image.crop((0, top + _LEAST_SLICE, image.width, top + _SIDE)), "int16")
        cut = top + _LEAST_SLICE + int(np.ptp(rows, axis=1).argmin())
        yield image.crop((0, top, image.width, cut))
        top = cut
    yield image.crop((0, top, image.width, image.height))


def _png(image: Image.Image) -> bytes:
    data = BytesIO()
    image.save(data, "PNG", compress_level=1)
    return data.getvalue()
