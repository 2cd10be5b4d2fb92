"""The project's addresses."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from wecom_ops.health import healthz

urlpatterns = [
    path("", RedirectView.as_view(url="/admin/"), name="home"),
    path("admin/", admin.site.urls),
    path("i18n/", include("django.conf.urls.i18n")),
    path("healthz", healthz, name="healthz"),
]
