"""Draws what a logged forward let each row see: channels as blocks, what was granted as a band.

Down go the rows, in the order of the forward. Across go first the positions in
granted pages, which several channels may see, then every channel's own ones.
Red is what must not be: cells of another channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inference_svc.audit.layout import Layout, offsets, wrong_pages
from inference_svc.audit.record import Record
from inference_svc.rows import PAGE_SIZE

Picture = npt.NDArray[np.uint8]

PAPER, GRID = (255, 255, 255), (226, 226, 226)
BAND, WRONG = (247, 181, 56), (208, 0, 0)
BLOCKS = ((38, 84, 124), (6, 138, 114), (112, 78, 160), (64, 120, 200))
MOST_PIXELS = 1600
LARGEST_CELL = 12
MARGIN, HEAD = 74, 34


class CannotDraw(ValueError):
    """A picture cannot be made here; the text says why."""


def mask_of(layout: Layout) -> tuple[Picture, list[int]]:
    """The mask as colours.

    Returns:
        ``[rows, columns, 3]`` and the first column of the band and of every
        part after it. A column is a position; there is at least one.
    """
    band = list(dict.fromkeys(page for part in layout for page in part.pages if page in part.granted))
    starts = [0]
    widths = [len(band) * PAGE_SIZE] + [
        sum(page not in part.granted for page in part.pages) * PAGE_SIZE for part in layout
    ]
    for width in widths:
        starts.append(starts[-1] + width)
    cells = np.full((sum(part.count for part in layout), max(starts[-1], 1), 3), PAPER, np.uint8)
    wrong = wrong_pages(layout)
    for at, (part, row) in enumerate(zip(layout, offsets(layout), strict=True)):
        own = starts[at + 1]
        for index, page in enumerate(part.pages):
            granted = page in part.granted
            column = band.index(page) * PAGE_SIZE if granted else own
            own += 0 if granted else PAGE_SIZE
            colour = WRONG if (at, index) in wrong else BAND if granted else BLOCKS[at % len(BLOCKS)]
            for offset in range(part.count):
                seen = min(PAGE_SIZE, part.position + offset + 1 - index * PAGE_SIZE)
                cells[row + offset, column : column + max(seen, 0)] = colour
    return cells, starts[:-1]


def draw(record: Record, path: Path) -> None:
    """Writes the picture as PNG.

    Raises:
        CannotDraw: Pillow is not installed, or the file cannot be written.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise CannotDraw("drawing needs Pillow: pip install 'kev-serving[local]'") from None
    cells, starts = mask_of(record.layout)
    height, width = _scale(cells.shape[0]), _scale(cells.shape[1])
    pixels = _resized(cells, height, width)
    whole = Image.new("RGB", (pixels.shape[1] + MARGIN + 10, pixels.shape[0] + HEAD + 10), PAPER)
    whole.paste(Image.fromarray(pixels), (MARGIN, HEAD))
    pen = ImageDraw.Draw(whole)
    pen.text((4, 4), _title(record), fill=(0, 0, 0))
    for part, row in zip(record.layout, offsets(record.layout), strict=True):
        y = HEAD + int(row * height)
        pen.line((MARGIN, y, whole.width - 10, y), fill=GRID)
        if part.count * height >= 10:
            pen.text((4, y), f"channel {part.channel}" if part.channel >= 0 else "prefix", fill=(0, 0, 0))
    for column in starts:
        x = MARGIN + int(column * width)
        pen.line((x, HEAD, x, whole.height - 10), fill=GRID)
    try:
        whole.save(path, "PNG")
    except OSError as error:
        raise CannotDraw(f"{path}: cannot be written ({error.strerror or error})") from None


def _title(record: Record) -> str:
    cells = record.cells
    return (
        f"forward {record.forward} of {record.source.worker}: {len(record.layout)} channels, "
        f"{cells.own} cells own, {cells.granted} granted (band), {cells.cross} of others (red)"
    )


def _scale(count: int) -> float:
    """Pixels per row or column; less than 1 where there are more of them than pixels."""
    return min(LARGEST_CELL, max(1, MOST_PIXELS // count)) if count <= MOST_PIXELS else MOST_PIXELS / count


def _resized(cells: Picture, height: float, width: float) -> Picture:
    """Nearest cell, but red is never lost: it wins over all others of its pixel."""
    rows, columns = (_cells_of(count, scale) for count, scale in zip(cells.shape, (height, width), strict=False))
    picture = cells[np.ix_(rows, columns)]
    for row, column in np.argwhere((cells == WRONG).all(axis=2)):
        picture[_pixel(row, height), _pixel(column, width)] = WRONG
    return picture


def _cells_of(count: int, scale: float) -> Sequence[int]:
    return [min(int(pixel / scale), count - 1) for pixel in range(max(int(count * scale), 1))]


def _pixel(cell: int, scale: float) -> slice:
    first = int(cell * scale)
    return slice(first, max(first + 1, int((cell + 1) * scale)))
