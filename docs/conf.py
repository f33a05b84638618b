"""Sphinx configuration; `nox -s docs` builds with warnings as errors."""

from importlib.metadata import version as installed_version

project = "delta-mixin"
author = "the delta-mixin contributors"
version = release = installed_version("delta-mixin")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"delta-mixin {version}"

# Headings can be linked to from other pages.
myst_heading_anchors = 3
# Names in docstrings stand in single backticks, as in Markdown.
default_role = "code"

autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_numpy_docstring = False
# Dataclass fields are listed with the class, not once more by themselves.
napoleon_use_ivar = True


def _as_rest(app, what, name, obj, options, lines):
    """Adapt what docstrings write the plain way to what Sphinx makes of it."""
    if what in ("attribute", "data", "property") and lines:
        # Napoleon would take the words before a colon for the type.
        lines[0] = lines[0].replace(": ", " -- ", 1)
    for number, line in enumerate(lines[:-2]):
        deeper = " " * (len(line) - len(line.lstrip()) + 4)
        if line.endswith(":") and not lines[number + 1] and lines[number + 2].startswith(deeper):
            lines[number] = f"{line}:"  # code is indented below one colon; reST wants two


def setup(app):
    """Hook into autodoc before napoleon (500), which takes indentation away."""
    app.connect("autodoc-process-docstring", _as_rest, priority=400)
