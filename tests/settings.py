"""The real settings with a data directory, a test database name and a password hash of the tests' own."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

# In memory, where a commit waits for no disk, if Linux has some to give.
MEMORY = Path("/dev/shm")
HAS_MEMORY = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2**30

# Before the real settings are read: a test run never sees, or fills, anybody's data directory.
os.environ["MNESIS_DATA_DIR"] = tempfile.mkdtemp(prefix="mnesis-tests-", dir=MEMORY if HAS_MEMORY else None)
atexit.register(shutil.rmtree, os.environ["MNESIS_DATA_DIR"], ignore_errors=True)

from mnesis_site.settings import *  # noqa: E402, F403
from mnesis_site.settings import DATABASES, MIDDLEWARE, MNESIS, env_str  # noqa: E402

if DATABASES["default"]["ENGINE"] == "django.db.backends.postgresql":
    # Several people may test on one server, each with a name of their own.
    DATABASES["default"]["TEST"] = {"NAME": env_str("MNESIS_TEST_DATABASE", "test_mnesis")}
    # Nobody cuts the power of a test in this process, so no commit needs to wait for a disk.
    DATABASES["default"]["OPTIONS"]["options"] = "-c synchronous_commit=off"

# The real one is slow on purpose.
PASSWORD_HASHERS = ["tests.support.sites.hashers.QuickHasher"]

# Nothing here is worth the pauses of a real retry, and tests ask faster than anybody.
MNESIS["CONFIG_FILE"] = Path(os.environ["MNESIS_DATA_DIR"]) / "tests.toml"
MNESIS["CONFIG_FILE"].write_text(
    "[turn]\nretry_base_seconds = 0.005\nmost_at_once = 1_000\n[requests]\nper_second = 100_000\nburst = 100_000\n"
)

# A change for which nobody acts is an endpoint's mistake (tests/conftest.py).
MNESIS["REQUIRE_ACTOR"] = True

# Each test client would look for every file that there is to serve, and each of its requests run an event loop. The
# sites that tests start do serve files.
MIDDLEWARE = [name for name in MIDDLEWARE if not name.startswith("servestatic.")]
