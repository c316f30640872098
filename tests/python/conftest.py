"""The option of tests that write what they check."""


def pytest_addoption(parser):
    parser.addoption("--update", action="store_true", help="write the generated part of docs/compatibility.md anew")
