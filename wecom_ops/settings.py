"""Django settings; every environment variable read here is described in docs/configuration.md."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from wecom_ops import env
from wecom_ops.database import database_from_uri

BASE_DIR = Path(__file__).resolve().parent.parent

# --- Who may talk to us -------------------------------------------------------------------------
DEBUG = env.flag("DEBUG", default=False)
# Off only where the browser reaches the console without TLS, such as the demo on loopback.
HTTPS = env.flag("HTTPS", default=not DEBUG)
SECRET_KEY = env.text("SECRET_KEY", "insecure-key-for-debugging-only" if DEBUG else "")
if not SECRET_KEY:
    raise ImproperlyConfigured("SECRET_KEY must be set (or DEBUG switched on for development).")
SECRET_KEY_FALLBACKS = env.words("SECRET_KEY_FALLBACKS")
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS")
CSRF_TRUSTED_ORIGINS = env.words("CSRF_TRUSTED_ORIGINS")
PORT = env.number("PORT", 8000)

# --- Servers ------------------------------------------------------------------------------------
# Connections are kept for a while by the web's threads; workers open their own after any fork.
DATABASES = {
    "default": database_from_uri(
        env.text("DATABASE_URL", "postgresql:///wecom_ops"), conn_max_age=60
    )
}
REDIS_URL = env.text("REDIS_URL", "redis://127.0.0.1:6379/0")

# Tasks are hints (PostgreSQL is the truth), so neither results nor failures are kept for long.
RQ_QUEUES = {
    # Short control tasks, run in a forked work horse.
    "control": {"URL": REDIS_URL, "DEFAULT_TIMEOUT": 900},
    # A lane's turn ends by itself; RQ's timeout is a SIGALRM that would hit anywhere in it.
    "lanes": {"URL": REDIS_URL, "DEFAULT_TIMEOUT": -1},
}
RQ = {"DEFAULT_RESULT_TTL": 300, "DEFAULT_FAILURE_TTL": 7 * 24 * 3600}
# RQ's own pages can empty a queue behind the console's back and need inline script.
RQ_SHOW_ADMIN_LINK = False

# --- Limits of this installation ----------------------------------------------------------------
UPLOAD_MAX_BYTES = env.number("UPLOAD_MAX_BYTES", 200 * 1024 * 1024)
# A text longer than this, in UTF-8, is refused before it is sent; the official API takes 4000.
MESSAGE_MAX_BYTES = env.number("MESSAGE_MAX_BYTES", 4000)
SHARD_SLICE_SIZE = env.number("SHARD_SLICE_SIZE", 5000)
# A turn sends its worker no heartbeat, and a lease is renewed every second.
LANE_TURN_SECONDS = env.number("LANE_TURN_SECONDS", 120, least=5, most=300)
LANE_LEASE_SECONDS = env.number("LANE_LEASE_SECONDS", 8, least=4, most=60)
# A scheduled start that was missed by more than this asks a person instead of sending late.
MISSED_START_SECONDS = env.number("MISSED_START_SECONDS", 900)
# An item that is in doubt for longer than this calls for somebody.
RECONCILE_SLA_SECONDS = env.number("RECONCILE_SLA_SECONDS", 3600)
# The address holds the robot's key: it is a secret.
ALERT_WEBHOOK_URL = env.text("ALERT_WEBHOOK_URL")
PUBLIC_URL = env.text("PUBLIC_URL").rstrip("/")
ENVIRONMENT_LABEL = env.text("ENVIRONMENT_LABEL")

# --- Application --------------------------------------------------------------------------------
INSTALLED_APPS = [
    "batches",
    "axes",
    "wecom_ops.apps.ConsoleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_htmx",
    "django_rq",
]
MIDDLEWARE = [
    "wecom_ops.middleware.ContentSecurityPolicyMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "wecom_ops.middleware.ChosenLocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
]
ROOT_URLCONF = "wecom_ops.urls"
WSGI_APPLICATION = "wecom_ops.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Sign-in and transport security -------------------------------------------------------------
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "/admin/"
_VALIDATORS = "django.contrib.auth.password_validation"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"{_VALIDATORS}.UserAttributeSimilarityValidator"},
    {"NAME": f"{_VALIDATORS}.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": f"{_VALIDATORS}.CommonPasswordValidator"},
    {"NAME": f"{_VALIDATORS}.NumericPasswordValidator"},
]
# A job with more items than this is confirmed by another person than its maker; 0 = by anybody.
FOUR_EYES_ABOVE = env.number("FOUR_EYES_ABOVE", 0)
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
# Guessing a password: after so many failures of one name from one address, a quarter of an hour's
# rest. Counted in PostgreSQL, so by all web processes together.
AXES_FAILURE_LIMIT = env.number("LOGIN_FAILURE_LIMIT", 10)
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_LOCKOUT_TEMPLATE = "locked.html"
AXES_HTTP_RESPONSE_CODE = 429
AXES_ENABLE_ADMIN = False
AXES_DISABLE_ACCESS_LOG = True
AXES_VERBOSE = False
SESSION_COOKIE_AGE = 12 * 3600
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = HTTPS
LANGUAGE_COOKIE_AGE = 365 * 24 * 3600
LANGUAGE_COOKIE_HTTPONLY = True
LANGUAGE_COOKIE_SAMESITE = "Lax"
# gunicorn believes X-Forwarded-Proto from the addresses in FORWARDED_ALLOW_IPS alone (loopback by
# default), so no SECURE_PROXY_SSL_HEADER that anybody could send is needed.
SECURE_SSL_REDIRECT = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^healthz$"]
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = HTTPS
X_FRAME_OPTIONS = "DENY"

# --- Language and formats -----------------------------------------------------------------------
LANGUAGE_CODE = "zh-hans"
LANGUAGES = [("zh-hans", "简体中文"), ("en", "English")]
LOCALE_PATHS = [BASE_DIR / "locale"]
FORMAT_MODULE_PATH = ["wecom_ops.formats"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = env.text("TIME_ZONE", "Asia/Shanghai")
USE_THOUSAND_SEPARATOR = True

# --- Static files -------------------------------------------------------------------------------
STATIC_URL = "/static/"
STATIC_ROOT = Path(env.text("STATIC_ROOT", str(BASE_DIR / "var" / "static")))
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if DEBUG
        else "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = WHITENOISE_AUTOREFRESH = DEBUG

# --- Logging ------------------------------------------------------------------------------------
LOG_LEVEL = env.text("LOG_LEVEL", "INFO").upper()
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "format": "{asctime} {levelname} {name} pid={process} {message}",
            "style": "{",
        }
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        # Django's own set-up mails admins and hides warnings outside DEBUG; here all go to stderr.
        "django": {"handlers": [], "level": LOG_LEVEL, "propagate": True},
        "django.server": {"handlers": [], "level": LOG_LEVEL, "propagate": True},
        # Its lines hold whole addresses, the alert robot's with its key in it.
        "urllib3": {"level": "ERROR"},
    },
}
