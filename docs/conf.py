"""The course site: `sphinx-build -W -c docs . build/site`, with `pip install -e ".[mpi,tutorials,site]"`.

    README.md, tutorials/*.ipynb, docs/*.md ---> pages, the notebooks executed
    docstrings                              ---> docs/api/, a page for each module
    the source                              ---> code/, with an address for each line
    docs/sheet.py                           ---> docs/sheet.pdf

Nothing is loaded from the network, neither while it is built nor by whoever reads it. Executed notebooks are kept in
build/site/.jupyter_cache, so that the next time only those that changed are run. MINIDIST_SITE_RUN=00 runs one, and
shows the others without outputs. Read next: `code_pages.py`, `api_pages.py`, `course_map.py`.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import api_pages  # noqa: E402
import course_map  # noqa: E402
import sheet  # noqa: E402

project = "minidist"
author = "the authors of minidist"
copyright = "the authors of minidist, MIT licence"
root_doc = "docs/index"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.linkcode", "sphinx-mathjax-offline"]
extensions += ["code_pages", "api_pages", "course_map"]
include_patterns = ["README.md", "docs/*.md", "docs/api/*.rst", "tutorials/README.md", "tutorials/*.ipynb"]
exclude_patterns = [".*", "**/.*", "build", "dist", "minidist", "tests", "benchmarks", "exercises"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_timeout = 150  # seconds for a cell, as in tests/long_tutorials.py
nb_execution_raise_on_error = True  # but not where a cell is said to fail
nb_execution_in_temp = True
nb_merge_streams = True  # what a cell prints in one box, not in one for each line
if wanted := os.environ.get("MINIDIST_SITE_RUN"):
    all_of_them = sorted((HERE.parent / "tutorials").glob("*.ipynb"))
    nb_execution_excludepatterns = [
        f"*{each.name}" for each in all_of_them if not each.name.startswith(wanted)
    ]

autodoc_member_order = "bysource"
add_module_names = False
highlight_language = "none"  # pictures and tables in docstrings
suppress_warnings = [
    "ref.python",  # two classes of one name, in a signature: the link leads to one of them
    "misc.highlighting_failure",  # the cells of a notebook that is not executed are taken for plain Python, not IPython
]

html_theme = "furo"
html_title = "minidist"
html_static_path = ["style"]
html_css_files = ["course.css"]
html_show_sourcelink = False

linkcode_resolve = api_pages.linkcode_resolve


def setup(app):
    """Make what is built from code, before pages are looked for; and let the site's root lead to its first page."""
    api_pages.write(HERE / "api")
    sheet.draw(HERE / "sheet.pdf")
    course_map.check()
    app.connect("build-finished", lead_to_first_page)


def lead_to_first_page(app, failed):
    """Write index.html at the root."""
    if failed is None and app.builder.format == "html":
        page = f'<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={root_doc}.html">'
        Path(app.outdir, "index.html").write_text(page, encoding="utf-8")
