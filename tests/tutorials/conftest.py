import pytest

import job


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """128 training records of the real CIFAR-10, and 16 test records: the tutorials' data set reads both."""
    folder = job.cut_images(tmp_path_factory.mktemp("cifar"), 128, 16)
    if folder is None:
        pytest.skip("../shared/data/cifar-10 is absent")
    return folder
