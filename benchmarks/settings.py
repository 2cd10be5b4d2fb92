"""Settings for the benchmarks: the real ones, with static files served as they lie."""

import os

os.environ["DEBUG"] = "0"  # with it Django keeps every statement in memory
os.environ.setdefault("SECRET_KEY", "only-for-benchmarks-" + "x" * 40)
os.environ.setdefault("HTTPS", "off")
os.environ.setdefault("ALLOWED_HOSTS", "testserver")
os.environ.setdefault("LOG_LEVEL", "ERROR")

from wecom_ops.settings import *  # noqa: F403
from wecom_ops.settings import STORAGES

# The manifest would need collectstatic first.
STORAGES = STORAGES | {
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
}
