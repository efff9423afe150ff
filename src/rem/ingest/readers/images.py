"""Prepare images for OCR: one grey, upright image for each page, no larger than OCR needs."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

import numpy as np
from PIL import Image, ImageOps, ImageSequence, ImageStat, UnidentifiedImageError

MAX_PIXELS = 120_000_000
"""Twice a sheet of A3 at 600 dots per inch. Larger images need more memory than one file may use."""
MAX_SIDE_PIXELS = 4096
"""The parser shrinks larger images, even if the letters become unreadable."""
MIN_SLICE_PIXELS = 3072


class ImageError(ValueError):
    """An image that cannot be read."""


def prepare_pages(data: bytes) -> Iterator[bytes]:
    """Yield the pages of an image as PNG: all pages of a TIFF, the first frame of an animation."""
    # Turn off Pillow's own check: `_check_size` raises an error that tells what to do.
    Image.MAX_IMAGE_PIXELS = None
    try:
        image = Image.open(BytesIO(data))
    except UnidentifiedImageError:
        raise ImageError("it is damaged or in an unknown format: save it as PNG or JPEG") from None
    with image:
        for frame in ImageSequence.Iterator(image):
            _check_size(frame)
            for part in _split_long_image(_make_upright(frame)):
                yield _encode_png(part)
            if image.format != "TIFF":
                return


def _check_size(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise ImageError(
            f"it has {image.width:,} by {image.height:,} pixels, and REM reads up to {MAX_PIXELS:,}: make it smaller"
        )


def _make_upright(image: Image.Image) -> Image.Image:
    """Return a grey image, rotated as its EXIF data says."""
    orientation = image.getexif().get(0x0112)
    grey = _make_grey(image)
    if orientation:
        grey.getexif()[0x0112] = orientation
        ImageOps.exif_transpose(grey, in_place=True)
    return grey


def _make_grey(image: Image.Image) -> Image.Image:
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image, "float32")
        values = values - values.min()
        return Image.fromarray((values * (255 / max(values.max(), 1))).astype("uint8"))
    if not image.has_transparency_data:
        return image.convert("L")
    grey, opacity = image.convert("LA").split()
    # Light letters on a transparent background need a dark background.
    is_light = opacity.getbbox() is not None and ImageStat.Stat(grey, opacity).mean[0] > 127
    background = Image.new("L", image.size, 0 if is_light else 255)
    background.paste(grey, mask=opacity)
    return background


def _split_long_image(image: Image.Image) -> Iterator[Image.Image]:
    """Yield parts of a long image, such as the screenshot of a whole page, cut between lines of text."""
    if image.height <= 2 * image.width or image.height <= MAX_SIDE_PIXELS:
        image.thumbnail((MAX_SIDE_PIXELS, MAX_SIDE_PIXELS))
        yield image
        return
    if image.width > MAX_SIDE_PIXELS:
        image = image.resize((MAX_SIDE_PIXELS, image.height * MAX_SIDE_PIXELS // image.width))
    top = 0
    while image.height - top > MAX_SIDE_PIXELS:
        rows = np.asarray(image.crop((0, top + MIN_SLICE_PIXELS, image.width, top + MAX_SIDE_PIXELS)), "int16")
        cut = top + MIN_SLICE_PIXELS + int(np.ptp(rows, axis=1).argmin())
        yield image.crop((0, top, image.width, cut))
        top = cut
    yield image.crop((0, top, image.width, image.height))


def _encode_png(image: Image.Image) -> bytes:
    data = BytesIO()
    image.save(data, "PNG", compress_level=1)
    return data.getvalue()
