"""`pytest tests/scenarios --rewrite` writes what the core does now; the diff is the review."""


def pytest_addoption(parser):
    parser.addoption("--rewrite", action="store_true", help="write scenarios anew")
