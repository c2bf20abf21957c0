"""The page of a run: nothing in it is taken for HTML, and a browser draws it, wide and narrow, without a complaint."""

import html
import json
import os
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from minidist.comm.threads import run_ranks
from minidist.simulate.__main__ import run as simulated
from minidist.trace.page import contents as pages
from minidist.trace.page import render
from minidist.trace.timeline import Span, Timeline
from minidist.train.__main__ import main

EVIL = "</script><script>alert(1)</script><!-- <b>&amp;\"'"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def trained(path: Path, ranks: int, *options: str) -> str:
    """Give the page of a short training."""
    command = ["--quiet", "--steps", "4", "--batch", "30", "--report", str(path), *options]
    assert run_ranks(lambda comm: main(command), ranks) == [0] * ranks
    return path.read_text(encoding="utf-8")


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def hostile(ranks: int = 2) -> str:
    """Give a page in which every text that may come from a user tries to break out."""
    spans = [Span(r, "communication", EVIL, 0.0, 1e-3, step=1, layer=EVIL) for r in range(ranks)]
    about = {
        "title": EVIL,
        "command": EVIL * 20,
        "result": [[EVIL, EVIL], ["a" * 200, "b" * 200]],
        "curves": {"loss": [(1, 2.0), (2, float("nan")), (3, float("inf")), (4, 1.0)]},
        "mesh": {
            "columns": [EVIL],
            "rows": [{"place": EVIL, "holds": EVIL * 5, "ranks": [0, 1], "server": False}],
        },
        "costs": [[EVIL] * 10],
        "environment": [[EVIL, EVIL * 9]],
        "notes": {"costs": EVIL},
    }
    return render(pages.contents(Timeline(ranks, spans), about))


def test_no_text_of_a_user_is_taken_for_html() -> None:
    page = hostile()
    assert page.count("</script") == 2  # of the data and of the script itself
    assert page.count("<script") == 2
    assert "<b>" not in page
    assert f"<title>{html.escape(EVIL)}</title>" in page
    assert data_of(page)["command"] == EVIL * 20
    assert data_of(page)["curves"]["loss"] == [[1, 2.0], [2, None], [3, None], [4, 1.0]]


def test_nothing_is_loaded_from_elsewhere() -> None:
    page = hostile()
    assert "default-src 'none'" in page
    urls = set(re.findall(r"https?://[^\s\"'<]+", page))
    assert urls == {"http://www.w3.org/2000/svg"}  # the name of a kind of element, which nobody fetches


def test_the_page_has_every_span_byte_and_prediction_of_a_run(tmp_path: Path) -> None:
    data = data_of(
        trained(tmp_path / "run.html", 3, "--mode", "parameter-server", "--json", str(tmp_path / "run.json"))
    )
    result = json.loads((tmp_path / "run.json").read_text())
    assert [sum(row) for row in data["sent"]] == [sum(of.values()) for of in result["sent_in_steps"]["bytes"]]
    assert [row["ranks"] for row in data["mesh"]["rows"]] == [[0, 1], [2]]
    assert {line[4] for line in data["costs"]} == {line[7] for line in data["costs"]} == {"1.000", ""}
    assert [point[1] for point in data["curves"]["loss"]] == result["loss_history"]
    assert [step for step, *_ in data["steps"]] == [1, 2, 3, 4]
    for track in data["tracks"]:
        assert track["spans"]
        for level in [*track["spans"], *track["layers"], *track["flights"]]:
            assert all(before[1] <= after[0] for before, after in pairwise(level))


@pytest.mark.parametrize("mode", [("--zero", "2"), ("--mode", "pipeline"), ("--mode", "averaging")])
def test_looking_at_the_accuracy_after_each_epoch_changes_no_number(
    tmp_path: Path, mode: tuple[str, ...]
) -> None:
    options = [*mode, "--steps", "6", "--batch", "500", "--json", str(tmp_path / "run.json")]
    data = data_of(trained(tmp_path / "run.html", 2, *options))
    with_page = json.loads((tmp_path / "run.json").read_text())
    assert run_ranks(lambda comm: main(["--quiet", *options]), 2) == [0, 0]
    without = json.loads((tmp_path / "run.json").read_text())
    for name in ("loss_history", "parameters_sha256", "accuracy", "sent_in_steps"):
        assert with_page[name] == without[name], name
    assert [sum(row) for row in data["sent"]] == [
        sum(of.values()) for of in without["sent_in_steps"]["bytes"]
    ]
    steps = [step for step, _ in data["curves"]["accuracy"]]
    assert steps == ([6] if "averaging" in mode else [3, 6])
    assert data["curves"]["accuracy"][-1][1] == without["accuracy"]


def test_a_simulation_has_a_page_too(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    simulated(
        ["--ranks", "5", "--sync", "parameter-server", "--mesh", "data=2,pipe=2", "--report", str(path)]
    )
    data = data_of(path.read_text(encoding="utf-8"))
    assert [row["ranks"] for row in data["mesh"]["rows"]] == [[0, 2], [1, 3], [4]]
    assert len(data["tracks"]) == 5
    assert sum(map(sum, data["sent"])) > 0


def test_a_page_that_cannot_be_written_is_refused_before_training(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--report", "/nonexistent/run.html"]) == 2
    assert "--report /nonexistent/run.html: there is no directory /nonexistent" in capsys.readouterr().err


# ---- in a browser

LOOK = """
<body><pre id="told"></pre><script>
const told = [];
const soon = () => new Promise(done => setTimeout(done, 100));
async function look(file, width) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width: ${width}px; height: 800px; border: 0`;
  const loaded = new Promise(done => { frame.onload = done; });
  frame.src = file;
  document.body.append(frame);
  await loaded;
  await soon();
  const page = frame.contentDocument, own = frame.contentWindow, canvas = page.getElementById("timeline");
  const said = {file, width, innerWidth: own.innerWidth, scrollWidth: page.documentElement.scrollWidth, ranges: []};
  const note = async () => { await soon(); said.ranges.push(page.getElementById("range").textContent); };
  const outside = node => !node.closest(".scroll, canvas") && node.getBoundingClientRect().right > width + 1;
  said.overflowing = [...page.body.querySelectorAll("*")].filter(outside).map(node => node.outerHTML.slice(0, 80));
  await note();
  page.getElementById("in").click();
  await note();
  const box = canvas.getBoundingClientRect();
  const here = {clientX: box.left + box.width / 2, clientY: box.top + 37, bubbles: true, cancelable: true};
  canvas.dispatchEvent(new own.WheelEvent("wheel", {...here, deltaY: -200}));
  await note();
  canvas.dispatchEvent(new own.KeyboardEvent("keydown", {key: "PageDown", bubbles: true}));
  await note();
  canvas.dispatchEvent(new own.PointerEvent("pointerdown", {...here, buttons: 1}));
  canvas.dispatchEvent(new own.PointerEvent("pointermove", {...here, clientX: here.clientX + 90, buttons: 1}));
  own.dispatchEvent(new own.PointerEvent("pointerup", {}));
  await note();
  canvas.dispatchEvent(new own.KeyboardEvent("keydown", {key: "0", bubbles: true}));
  await note();
  canvas.dispatchEvent(new own.PointerEvent("pointermove", here));
  said.pointed = page.getElementById("details").textContent;
  canvas.dispatchEvent(new own.KeyboardEvent("keydown", {key: "ArrowDown", bubbles: true}));
  said.walked = page.getElementById("details").textContent;
  const ink = new Set(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data);
  said.ink = ink.size;
  told.push(said);
}
(async () => {
  for (const file of FILES) for (const width of [1280, 400]) await look(file, width);
  document.getElementById("told").textContent = JSON.stringify(told);
})();
</script></body>
"""


def browser() -> str:
    """Give the browser that MINIDIST_BROWSER names, or one that is here; skip where there is none."""
    if named := os.environ.get("MINIDIST_BROWSER"):
        return named
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no Chromium here, so no page was looked at; .ci/full asks for one")
    return found


def looked_at(directory: Path, files: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Open pages at 1280 and 400 pixels; give what was seen, and what the console says."""
    (directory / "look.html").write_text(LOOK.replace("FILES", json.dumps(files)), encoding="utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--allow-file-access-from-files",
    ]
    options += ["--enable-logging=stderr", "--virtual-time-budget=60000", "--dump-dom"]
    options += [f"--user-data-dir={directory / 'profile'}", (directory / "look.html").as_uri()]
    done = subprocess.run([browser(), *options], capture_output=True, text=True, timeout=240, check=True)
    seen = re.search('<pre id="told">(.*?)</pre>', done.stdout, re.DOTALL)
    assert seen, done.stderr
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(seen[1]) or "[]"), console


def test_a_browser_draws_it_wide_and_narrow_and_the_timeline_zooms_and_moves(tmp_path: Path) -> None:
    trained(tmp_path / "pipeline.html", 4, "--mode", "pipeline", "--microbatches", "4")
    (tmp_path / "hostile.html").write_text(hostile(), encoding="utf-8")
    (tmp_path / "many.html").write_text(hostile(ranks=70), encoding="utf-8")
    # So that it is known that complaints are heard.
    broken = hostile().replace("function walk(", "nothing.walk(")
    (tmp_path / "broken.html").write_text(broken, encoding="utf-8")
    seen, console = looked_at(tmp_path, ["pipeline.html", "hostile.html", "many.html", "broken.html"])
    assert [line for line in console if "broken.html" not in line] == []
    assert len([line for line in console if "SyntaxError" in line]) == 2
    assert len(seen) == 8
    for page in seen[:6]:
        assert page["innerWidth"] == page["width"]
        assert page["scrollWidth"] <= page["innerWidth"], page
        assert page["overflowing"] == []
        first, nearer, wheeled, moved, dragged, whole = page["ranges"]
        assert len({first, nearer, wheeled, moved, dragged}) == 5, page["ranges"]
        assert whole.startswith("0 to ")
        assert "rank 0: " in page["pointed"], page
        assert "rank 1: " in page["walked"]
        assert page["ink"] > 10
    assert "step " in seen[0]["pointed"]
