"""The course site is built without a warning, and a browser shows it at 1280 and at 400 pixels without a complaint.

    pip install -e ".[mpi,test,tutorials,site]" && pytest -n 0 tests/long_site.py

MINIDIST_SITE_RUN says how the names begin of the notebooks that are executed: "00" (the default) or "" for all of them.
MINIDIST_SITE is where it is built, so that it can be looked at, and built faster the next time. MINIDIST_BROWSER names
the browser.
"""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SEEN = [
    "docs/index.html",
    "docs/glossary.html",
    "README.html",
    "docs/what_ranks_did.html",
    "docs/api/minidist.comm.on_tape.html",
    "code/minidist/comm/all_reduce.html",
    "tutorials/README.html",
    *(f"tutorials/{source.stem}.html" for source in sorted((ROOT / "tutorials").glob("*_*.ipynb"))),
]
LOOK = """
<body><pre id="told"></pre><script>
const told = [], soon = milliseconds => new Promise(done => setTimeout(done, milliseconds));
async function open(frame, file) {
  const loaded = new Promise(done => { frame.onload = done; });
  frame.src = file;
  await loaded;
  await soon(300);
  return frame.contentDocument;
}
const wide = node => !node.closest(".highlight, .table-wrapper, .cell_output, pre, svg, mjx-container");
async function look(file, width) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width: ${width}px; height: 800px; border: 0`;
  document.body.append(frame);
  const page = await open(frame, file), own = frame.contentWindow, article = page.querySelector("article");
  const all = selector => [...page.querySelectorAll(selector)];
  const formulas = all(".math").length;
  for (let wait = 0; formulas && wait < 100 && all("mjx-container").length < formulas; wait++) await soon(100);
  const outside = node => wide(node) && node.getBoundingClientRect().right > width + 1;
  const parts = all("article *").filter(outside).map(node => node.outerHTML.slice(0, 90));
  const said = {file, width, innerWidth: own.innerWidth, parts, formulas};
  said.scrollWidth = page.documentElement.scrollWidth;
  said.drawn = all("mjx-container").length;
  said.pictures = all("article img").map(image => image.naturalWidth);
  said.words = article.innerText.length;
  said.loaded = all("script[src], link[rel=stylesheet], img").map(node => node.src || node.href);
  said.folded = all("details.hide").map(each => each.open);
  said.targets = all("article a[href], .sidebar-tree a[href], .related-pages a[href]")
    .map(link => link.href.baseVal === undefined ? link.href : new URL(link.href.baseVal, link.baseURI).href);  // svg
  told.push(said);
  frame.remove();
}
async function walk(width) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width: ${width}px; height: 800px; border: 0`;
  document.body.append(frame);
  const steps = [];
  const follow = async selector => {
    const page = frame.contentDocument, loaded = new Promise(done => { frame.onload = done; });
    const link = page.querySelector(selector);
    link.dispatchEvent(new frame.contentWindow.MouseEvent("click", {bubbles: true, cancelable: true}));
    await loaded;
    await soon(300);
    steps.push(frame.contentDocument.querySelector("h1").textContent);
  };
  await open(frame, "index.html");
  await soon(500);
  await follow(".course-map a");
  await follow(".related-pages .next-page");
  if (width < 600) frame.contentDocument.querySelector(".mobile-header label").click();
  const menu = frame.contentDocument.querySelector(".sidebar-drawer").getBoundingClientRect();
  await follow('.sidebar-tree a[href$="glossary.html"]');
  await follow('article a[href*="#line-"]');
  const line = frame.contentDocument.querySelector(":target");
  told.push({steps, menu: menu.width, line: line && line.textContent});
  frame.remove();
}
(async () => {
  for (const width of [1280, 400]) { for (const file of FILES) await look(file, width); await walk(width); }
  document.getElementById("told").textContent = JSON.stringify(told);
})();
</script></body>
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; any warning is an error."""
    pytest.importorskip("myst_nb")
    folder = Path(os.environ.get("MINIDIST_SITE", tmp_path_factory.mktemp("site")))
    wanted = {"MINIDIST_SITE_RUN": os.environ.get("MINIDIST_SITE_RUN", "00")}
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **wanted}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def seen(site: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Open its pages in a browser; what was seen, and what the console says."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = os.environ.get("MINIDIST_BROWSER") or next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        pytest.skip("there is no Chromium here, so no page was looked at; .ci/full asks for one")
    (site / "look.html").write_text(LOOK.replace("FILES", json.dumps(SEEN)), encoding="utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--allow-file-access-from-files",
    ]
    options += ["--enable-logging=stderr", "--virtual-time-budget=600000", "--dump-dom"]
    options += [f"--user-data-dir={site / 'profile'}", (site / "look.html").as_uri()]
    done = subprocess.run([browser, *options], capture_output=True, text=True, timeout=500, check=True)
    shutil.rmtree(site / "profile", ignore_errors=True)
    told = re.search('<pre id="told">(.*?)</pre>', done.stdout, re.DOTALL)
    assert told, done.stderr
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(told[1]) or "[]"), console


def test_pages_fit_the_window_and_show_their_pictures_and_formulas(seen) -> None:
    told, console = seen
    pages = [page for page in told if "file" in page]
    assert console == []
    assert len(pages) == 2 * len(SEEN)
    for page in pages:
        name = f"{page['file']} at {page['width']} pixels"
        assert page["innerWidth"] == page["width"], name
        assert page["scrollWidth"] <= page["width"], name
        assert page["parts"] == [], name
        assert page["drawn"] == page["formulas"], name
        assert all(page["pictures"]), name
        assert page["words"] > 300, name
        assert not any(page["folded"]), name
    assert sum(page["formulas"] for page in pages) > 20
    assert sum(len(page["pictures"]) for page in pages) > 2
    assert all(
        page["folded"] for page in pages if "_" in page["file"].split("/")[-1] and "tutorials" in page["file"]
    )


def test_nothing_is_loaded_from_elsewhere_and_each_link_within_the_site_leads_somewhere(
    site: Path, seen
) -> None:
    pages = [page for page in seen[0] if "file" in page]
    assert {name.split(":")[0] for page in pages for name in page["loaded"]} == {"file"}
    files = {target for page in pages for target in page["targets"] if target.startswith("file:")}
    assert len(files) > 100
    texts: dict[Path, str] = {}
    for target in sorted(files):
        address, _, place = target.removeprefix("file://").partition("#")
        path = Path(address.split("?")[0])
        assert path.exists(), target
        if place and path.suffix == ".html":
            text = texts.setdefault(path, path.read_text(encoding="utf-8"))
            assert f'id="{place}"' in text, target


def test_one_can_walk_from_the_map_to_a_notebook_to_the_next_one_and_from_a_term_to_its_line(seen) -> None:
    walks = [page for page in seen[0] if "steps" in page]
    assert len(walks) == 2
    for walk in walks:
        first, second, third, fourth = (step.rstrip("\N{PILCROW SIGN}") for step in walk["steps"])
        assert first.startswith("00")
        assert second.startswith("01")
        assert (third, fourth) == ("Glossary", "minidist/comm/core.py")
        assert "self.rank" in walk["line"]
        assert walk["menu"] > 200
