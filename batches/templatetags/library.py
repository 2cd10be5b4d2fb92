"""The one tag library that several modules fill."""

from django import template

register = template.Library()
