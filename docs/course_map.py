"""The course as a map: which notebook needs which, drawn for the first page.

    00 ranks
      |       01 autograd ---- 02 kernels, a side road
    03 collectives      |
      +---------+-------+-----+
    04        07            08 pipeline
      ...

One table says it all; a test compares it with what the notebooks say under "You need". Lines run in the gaps between
rows, except those of two columns, which run along the border, since what hangs there needs nothing from the middle.
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path

TUTORIALS = Path(__file__).parents[1] / "tutorials"
WIDTH, HEIGHT, ROW, LEFT, COLUMN = (
    122,
    46,
    74,
    14,
    134,
)  # of boxes, from row to row, of the border, from column to column


@dataclass(frozen=True)
class Place:
    """A notebook: how its file begins, its words in two lines, where it stands, and what it needs."""

    number: str
    words: tuple[str, str]
    column: int
    row: int
    needs: tuple[str, ...] = ()

    @property
    def page(self) -> str | None:
        """The name of its file without the ending; None if it is not written yet."""
        return next((file.stem for file in TUTORIALS.glob(f"{self.number}_*.ipynb")), None)

    @property
    def x(self) -> int:
        """Its left border."""
        return LEFT + COLUMN * self.column

    @property
    def y(self) -> int:
        """Its upper border."""
        return 4 + ROW * self.row


COURSE = (
    Place("00", ("one program,", "four copies"), 0, 0),
    Place("01", ("autograd", "from nothing"), 1, 0),
    Place("02", ("kernels:", "a side road"), 2, 0, ("01",)),
    Place("03", ("messages and", "collectives"), 0, 1, ("00",)),
    Place("04", ("data", "parallel"), 0, 2, ("03", "01")),
    Place("05", ("buckets and", "overlap"), 0, 3, ("04",)),
    Place("06", ("ZeRO: who", "holds what"), 0, 4, ("04",)),
    Place("07", ("model", "parallel"), 1, 2, ("03", "01")),
    Place("08", ("pipeline I:", "the bubble"), 2, 2, ("03", "01")),
    Place("09", ("pipeline II:", "zero bubble"), 2, 3, ("08",)),
    Place("10", ("model", "averaging"), 0, 5, ("04",)),
    Place("11", ("parameter", "server"), 0, 6, ("04",)),
    Place("12", ("mixing modes", "on a mesh"), 1, 3, ("04", "07", "08")),
    Place("13", ("what goes", "wrong"), 0, 7, ("04",)),
    Place("14", ("a thousand", "ranks"), 1, 4, ("12",)),
    Place("15", ("more than one", "machine"), 0, 8, ("04",)),
)
BORDERS = {"04": LEFT - 9, "08": LEFT + 2 * COLUMN + WIDTH + 9}  # whose lines run along the border, and where


def of(number: str) -> Place:
    """Give the place of a notebook."""
    return next(place for place in COURSE if place.number == number)


def all_needs(number: str) -> set[str]:
    """Give all that a notebook needs, with what that needs."""
    return {found for needed in of(number).needs for found in {needed, *all_needs(needed)}}


def check() -> None:
    """Refuse a notebook that the map does not know."""
    known = {place.number for place in COURSE}
    unknown = [file.name for file in TUTORIALS.glob("[0-9][0-9]_*.ipynb") if file.name[:2] not in known]
    if unknown:
        raise LookupError(f"docs/course_map.py does not know {', '.join(unknown)}: add a line to COURSE")


def line(needed: Place, place: Place) -> str:
    """Draw a line from what is needed to what needs it."""
    start, end = needed.x + WIDTH // 2, place.x + WIDTH // 2
    if place.row == needed.row:
        path = f"M{needed.x + WIDTH},{needed.y + HEIGHT // 2}H{place.x}"
    elif place.column == needed.column and needed.number in BORDERS:
        side = WIDTH * (place.column == 2)
        border, level = BORDERS[needed.number], HEIGHT // 2
        path = f"M{needed.x + side},{needed.y + level}H{border}V{place.y + level}H{place.x + side}"
    else:
        path = f"M{start},{needed.y + HEIGHT}V{place.y - (ROW - HEIGHT) // 2}H{end}V{place.y}"
    return f'<path class="{"side" if place.number == "02" else "need"}" d="{path}"/>'


def box(place: Place, up: str) -> str:
    """Draw a notebook, as a link to its page."""
    first, second = map(escape, place.words)
    middle = place.x + 28 + (WIDTH - 28) // 2
    drawn = (
        f'<rect x="{place.x}" y="{place.y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
        f'<text class="number" x="{place.x + 17}" y="{place.y + 28}">{place.number}</text>'
        f'<text x="{middle}" y="{place.y + 20}">{first}</text><text x="{middle}" y="{place.y + 35}">{second}</text>'
    )
    if place.page is None:
        return f'<g class="later">{drawn}</g>'
    return f'<a href="{up}tutorials/{place.page}.html">{drawn}</a>'


def svg(up: str = "") -> str:
    """Draw the map; up: the way from the page that shows it to the site's root."""
    width = 2 * LEFT + 2 * COLUMN + WIDTH
    height = 8 + ROW * max(place.row for place in COURSE) + HEIGHT
    lines = "".join(line(of(needed), place) for place in COURSE for needed in place.needs)
    boxes = "".join(box(place, up) for place in COURSE)
    label = "The notebooks, and lines from each to those that need it"
    about = f'class="course-map" viewBox="0 0 {width} {height}" role="img" aria-label="{label}"'
    return f"<svg {about}>{lines}{boxes}</svg>"


def setup(app):
    """Join the site's build: {course-map} draws it."""
    from docutils import nodes
    from docutils.parsers.rst import Directive

    class CourseMap(Directive):
        def run(self):
            up = "../" * self.state.document.settings.env.docname.count("/")
            return [nodes.raw("", svg(up), format="html")]

    app.add_directive("course-map", CourseMap)
    return {"parallel_read_safe": True}
