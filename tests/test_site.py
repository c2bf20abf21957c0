"""The course site: what it is made of is there, and fits together. It is built and looked at by long_site.py."""

import importlib
import math
import re
from itertools import combinations
from pathlib import Path

import pytest

from minidist.plan import cost, traffic, zero
from minidist.plan.cluster import Link

ROOT = Path(__file__).parents[1]


@pytest.fixture
def docs(monkeypatch):
    """Give a module of docs/."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module


def test_each_term_of_the_glossary_has_its_line_of_code(docs):
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    targets = re.findall(r"\{line\}`([^`]+)`", text)
    terms = re.findall(r"^(?=\S)(?!#|`|The words|Each)(.+)\n  \S", text, re.MULTILINE)
    assert len(targets) == len(terms) > 50
    for target in targets:
        docs("code_pages").find(target)  # or LookupError


@pytest.mark.parametrize(
    "target", ["no.module", "minidist.comm.mesh.Ring", "minidist.comm.mesh.Mesh : Saturn"]
)
def test_what_is_not_in_the_code_is_refused(docs, target):
    with pytest.raises(LookupError):
        docs("code_pages").find(target)


def test_a_line_is_that_of_the_definition_or_of_the_text_in_it(docs):
    module, line = docs("code_pages").find("minidist.comm.core.Core.__init__ : self.rank")
    source = (ROOT / "minidist" / "comm" / "core.py").read_text(encoding="utf-8").splitlines()
    assert (module, source[line - 1].split(":")[0].strip()) == ("minidist.comm.core", "self.rank")


def test_the_map_has_every_notebook_and_what_it_says_that_it_needs(docs):
    course_map = docs("course_map")
    course_map.check()
    for source in sorted((ROOT / "tutorials").glob("[0-9][0-9]_*.md")):
        said = re.search(r"^You need.*?\n\n", source.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        needed = (
            re.split(";|Reading", said[0])[0] if said else ""
        )  # what "helps" besides stands behind a semicolon
        wanted = set(re.findall(r"\b([01][0-9])\b", needed))
        assert wanted <= course_map.all_needs(source.name[:2]), source.name
    drawn = [(place.column, place.row) for place in course_map.COURSE]
    assert len(set(drawn)) == len(drawn)


def test_docstrings_keep_their_pictures_and_mean_nothing_else(docs):
    plain = docs("api_pages").plain
    assert plain(["Say a|b of `x_`.", "", "    0 --> 1 *", "", "- one", "  more", "- *two*"]) == [
        *("Say a\\|b of \\ ``x_``\\ .", "", "", "::", "", "        0 --> 1 *", "", ""),
        *("- one", "  more", "- *two*"),
    ]


def test_the_sheet_is_one_page_on_which_no_text_lies_over_another_or_leaves_it(docs):
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = docs("sheet").page()
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in figure.texts if text.get_text()]
    paper = figure.bbox
    for text, box in boxes:
        inside = 0.03 * paper.width < box.x0 < box.x1 < 0.97 * paper.width and box.y0 > 0.02 * paper.height
        assert inside, f"{text!r} leaves the page"
    for (one, a), (other, b) in combinations(boxes, 2):
        over = min(a.x1, b.x1) - max(a.x0, b.x0) > 0 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
        assert not over, f"{one!r} lies over {other!r}"


def value(formula, **sizes):
    return eval(formula, {"log2": math.log2, **sizes})


def test_the_sheets_costs_of_collectives_are_what_ranks_send(docs):
    p, n = 8, 1 << 19  # one block of a ring
    pieces = [n // p] * p
    ways = {
        **{
            ("all-reduce", name.replace("_", " ")): [
                traffic.all_reduce(n // 8, 8, r, p, name) for r in range(p)
            ]
            for name in ("naive", "tree", "recursive_doubling", "ring")
        },
        ("all-reduce", "shared memory"): [traffic.all_reduce(n // 8, 8, r, p, "shared") for r in range(p)],
        ("reduce-scatter", "ring"): [traffic.reduce_scatter(pieces, r) for r in range(p)],
        ("all-gather", "ring"): [traffic.all_gather(pieces, r) for r in range(p)],
        ("all-to-all", "pairwise"): [traffic.all_to_all(pieces, r) for r in range(p)],
        ("broadcast", "tree"): [traffic.broadcast(n, r, p) for r in range(p)],
        ("reduce", "tree"): [traffic.reduce(n, r, p) for r in range(p)],
        ("barrier", "dissemination"): [traffic.barrier(p)],
    }
    link, last = Link(1e-5, 1e9), ""
    for name, way, messages, nbytes, seconds in docs("sheet").COLLECTIVES:
        last = name or last
        sent = ways.pop((last, way))
        assert value(messages, p=p) == max(rank.messages for rank in sent), (last, way)
        assert value(nbytes, p=p, n=n) == max(rank.bytes for rank in sent), (last, way)
        if seconds:
            if last == "all-reduce":
                algorithm = way.replace(" ", "_").removesuffix("_memory")
                right = cost.all_reduce(n // 8, 8, p, link, algorithm)
            else:
                right = cost.other(last.replace("-", "_"), n, p, link)
            assert math.isclose(value(seconds, p=p, n=n, a=link.latency, B=link.bandwidth), right), (
                last,
                way,
            )
    assert not ways


def test_the_sheets_costs_of_zero_are_those_of_its_plan(docs):
    p, n, K = 4, 4096, 2
    bucket = [zero.Shared(n // 4, 4, 0, p)]
    for name, _, sent, *held in docs("sheet").MODES[1:4]:
        stage = int(name[-1])
        keeps = zero.memory(bucket, stage, K)
        assert [value(each, p=p, n=n, K=K) for each in held] == [
            keeps[k] for k in ("weights", "gradients", "state")
        ]
        sends = zero.bytes_per_step(bucket, stage, fetches=[2])
        assert value(sent, p=p, n=n) == sends["gradient"].bytes + sends["weights"].bytes
