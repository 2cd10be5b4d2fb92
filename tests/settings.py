"""Settings for the test suite: the real ones, with defaults that let pytest start on its own."""

import os
from urllib.parse import urlsplit

os.environ.setdefault("SECRET_KEY", "only-for-tests-" + "x" * 40)
os.environ.setdefault("HTTPS", "off")
os.environ.setdefault("ALLOWED_HOSTS", "testserver,localhost,127.0.0.1")
# Test processes side by side (-n) have a database each; here each gets a Redis database too.
if worker := os.environ.get("PYTEST_XDIST_WORKER", ""):
    parts = urlsplit(os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379/0")
    os.environ["REDIS_URL"] = parts._replace(path=f"/{1 + int(worker[2:])}").geturl()

from wecom_ops.settings import *  # noqa: F403
from wecom_ops.settings import STORAGES

# The manifest needs collectstatic first; a fast hasher keeps logins cheap.
STORAGES = STORAGES | {
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
}
WHITENOISE_USE_FINDERS = WHITENOISE_AUTOREFRESH = True
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# Client.login() has no request to count by; tests/integration/screens/test_sign_in.py turns it on.
AXES_ENABLED = False
