"""What the tests of the packages share."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--update", action="store_true", help="write the generated part of docs/compatibility.md anew")


@pytest.fixture
def fresh_context():
    """The settings of the package mindspore as they are before anything is set, before the test and after it."""
    from mindspore import context  # here: most tests of the package tessera do without

    def reset():
        context.reset_auto_parallel_context()
        context.set_context(mode=context.GRAPH_MODE)

    reset()
    yield
    reset()
