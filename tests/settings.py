"""Settings for the test suite: the real ones, with defaults that let pytest start on its own."""

import os

os.environ.setdefault("SECRET_KEY", "only-for-tests-" + "x" * 40)
os.environ.setdefault("HTTPS", "off")
os.environ.setdefault("ALLOWED_HOSTS", "testserver,localhost,127.0.0.1")

from wecom_ops.settings import *  # noqa: F403
from wecom_ops.settings import STORAGES

# The manifest needs collectstatic first; a fast hasher keeps logins cheap.
STORAGES = STORAGES | {
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
}
WHITENOISE_USE_FINDERS = WHITENOISE_AUTOREFRESH = True
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
