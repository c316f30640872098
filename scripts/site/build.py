"""Builds the site; scripts/docs calls this in its virtual environment."""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import check_links
import command_reference
import cpp_reference
import python_reference
import stage

ROOT = Path(__file__).resolve().parent.parent.parent
REFERENCE = ("cpp/index", "python/tessera_index", "python/mindspore_index", "commands/index")
CONFIGURATION = """project = "Tessera"
release = version = {version!r}
html_title = "Tessera " + version
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
html_static_path, html_css_files = ["style"], ["site.css"]
html_theme = "furo"
pygments_style, pygments_dark_style = "friendly", "monokai"
highlight_language = "none"
myst_heading_anchors = 6
smartquotes = False
html_copy_source = html_show_sourcelink = html_use_index = html_domain_indices = False
html_show_search_summary = False  # it reads the pages over a network
html_show_copyright = False
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
"""


def version():
    return re.search(r"^project\(.*?VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE | re.DOTALL).group(1)


def toctree(caption, places):
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *places, "```", ""])


def write_pages(folder, build):
    """Writes what Sphinx reads; returns the faults of links that lead out of the project."""
    staged = stage.Stage(ROOT)
    reference = cpp_reference.pages(ROOT) | python_reference.pages(ROOT, build) | command_reference.pages(ROOT, build)
    groups = [*stage.navigation((ROOT / "docs/README.md").read_text()), ("Reference", list(REFERENCE))]
    led_to = {place for _, places in groups for place in places} | {"index"}
    pages = staged.pages | reference
    pages["index"] += "\n## Reference\n\n" + "\n".join(
        f"* [{title}]({place}.md): {what}" for place, title, what in zip(
            REFERENCE, ("C++", "The Python package `tessera`", "The Python package `mindspore`", "The command `tessera`"),
            ("what does a public header have?", "what does a class or function take?", "which names are there, and what do they take?",
             "what does a command do, and which options has it?"), strict=True)) + "\n"
    pages["index"] += "".join(toctree(caption, places) for caption, places in groups)
    for place, text in pages.items():
        file = folder / f"{place}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        is_orphan = place not in led_to
        file.write_text(("---\norphan: true\n---\n\n" if is_orphan else "") + text)
    for place, picture in staged.pictures.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, folder / place)
    shutil.copytree(Path(__file__).resolve().parent / "style", folder / "style")
    (folder / "conf.py").write_text(CONFIGURATION.format(version=version()))
    return staged.faults


def is_site(folder):
    return (folder / "searchindex.js").is_file() and (folder / "index.html").is_file()


def main():
    parser = argparse.ArgumentParser(prog="scripts/docs")
    parser.add_argument("-o", dest="out", type=Path, default=ROOT / "build" / "docs", metavar="DIR")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", metavar="DIR")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    if out.exists() and not is_site(out) and (not out.is_dir() or any(out.iterdir())):
        parser.error(f"{arguments.out} is there and is no site: name an empty or a new folder")
    with tempfile.TemporaryDirectory(prefix="tessera-docs-") as folder:
        source, made = Path(folder) / "source", Path(folder) / "site"
        source.mkdir()
        faults = write_pages(source, arguments.build.resolve())
        sphinx = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going", "-j", "auto"]
        done = subprocess.run([*sphinx, "-d", Path(folder) / "trees", source, made], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            faults += [line.replace(f"{source}/", "") for line in done.stderr.splitlines() if line.strip()]
        else:
            faults += check_links.faults(made)
        if faults:
            sys.exit("\n".join([*faults, f"scripts/docs: {len(faults)} faults; nothing was written"]))
        for rest in (".buildinfo", "objects.inv"):
            (made / rest).unlink(missing_ok=True)
        shutil.rmtree(made / "_sources", ignore_errors=True)
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(made, out)
    print(f"{out / 'index.html'}: {sum(1 for _ in out.rglob('*.html'))} pages, every link leads somewhere")


if __name__ == "__main__":
    main()
