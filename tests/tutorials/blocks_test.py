"""Every Python block of the tutorials, on one rank and on 2 and 4 by mpirun; and the table that says how each is run."""
import re
import shutil
import subprocess

import pytest

import job
import pages
import table
from uses import USES

WITHOUT_WHITE_SPACE = re.compile(r"\s+")
MINUTES = 60 if job.FULL else 10


def squashed(code):
    return WITHOUT_WHITE_SPACE.sub("", code)


def page_text(page):
    found = pages.text(page)
    if found is None:
        pytest.skip(f"../shared/tutorials/{page} is absent")
    return found


@pytest.mark.parametrize("page", pages.RETYPED)
@pytest.mark.parametrize("language", ["python", "bash"])
def test_what_is_retyped_is_what_the_page_says(page, language):
    flat = [squashed(block.code) for block in pages.flattened(page_text(page)) if block.language == language]
    typed = [squashed(code) for code in pages.blocks(page, language)]
    # The third page's run scripts are the first page's.
    assert typed == flat or (page, language, typed) == ("003", "bash", [])


def test_the_run_script_of_the_third_page_is_the_firsts():
    page_text("000")
    flat = [squashed(block.code) for block in pages.flattened(page_text("003")) if block.language == "bash"]
    assert flat[0] in [squashed(code) for code in pages.blocks("000", "bash")]


@pytest.mark.parametrize("page", pages.PAGES)
def test_every_block_is_in_the_table(page):
    page_text(page)
    assert [use.number for use in USES if use.page == page] == list(range(1, len(pages.blocks(page)) + 1))


def test_the_table_is_in_the_docs():
    assert (pages.ROOT / "docs" / "tutorials.md").read_text() == table.text(), "docs/tutorials.md: write it anew with table.py"


class Jobs:
    """The blocks of a page run on so many ranks: each is started once, for all tests."""

    def __init__(self, folder, images):
        self.folder, self.images, self.done = folder, images, {}

    def outcome(self, page, ranks):
        if (page, ranks) not in self.done:
            folder = self.folder / f"{page}-{ranks}"
            folder.mkdir()
            scripts = []
            for use in USES:
                if use.page == page:
                    refusal = use.refusal()
                    scripts.append(folder / (use.name + (".refused.py" if refusal else ".py")))
                    scripts[-1].write_text((f"# {refusal}\n" if refusal else "") + use.program(job.IMAGE_SIZE))
            shutil.copy(job.EXAMPLES / "python" / "resnet50" / "resnet.py", folder)
            done = subprocess.run(job.python(ranks, pages.HERE / "run_blocks.py", *scripts), capture_output=True, text=True,
                                  cwd=folder, timeout=MINUTES * 60, env=job.environment(DATA_PATH=self.images, DEVICE_ID=0))
            self.done[page, ranks] = done.stdout + done.stderr
        return self.done[page, ranks]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory, images):
    return Jobs(tmp_path_factory.mktemp("blocks"), images)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("use", USES, ids=lambda use: f"{use.name} {use.title}")
def test_the_block_runs_or_is_refused_by_name(jobs, use, ranks):
    page_text(use.page)
    out = jobs.outcome(use.page, ranks)
    assert out.count(f"BLOCK {use.name} ok") == ranks, out
