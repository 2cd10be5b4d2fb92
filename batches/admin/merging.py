"""Forms of a row that others change meanwhile: nobody's change is undone unseen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django import forms
from django.db.models import QuerySet
from django.forms.models import model_to_dict
from django.http import QueryDict
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.translation import gettext as _

from batches.domain.actors import actor_words
from batches.selectors.event_details import value_words
from batches.selectors.events import last_change

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[Any]
else:
    _ModelForm = forms.ModelForm


class MergedForm(_ModelForm):
    """Sends along what its page had shown, so that it knows what the person touched.

    What they did not touch stays as it is in the row now, whoever changed it meanwhile. What they
    touched and somebody else changed meanwhile is refused, with both values; sent again, it is
    theirs. Only fields that show their value send it along: never a password or a token.
    """

    #: of the audit's kinds: `account.changed`
    family: ClassVar[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.instance._state.adding:  # noqa: SLF001 - Django's documented model API
            for _name, field in self._compared():
                field.show_hidden_initial = True

    def _compared(self) -> Iterator[tuple[str, forms.Field]]:
        columns = {
            field.name
            for field in (*self.instance._meta.fields, *self.instance._meta.many_to_many)  # noqa: SLF001
        }
        for name, field in self.fields.items():
            if name in columns and not field.disabled:
                yield name, field

    def clean(self) -> Any:
        super().clean()
        if not self.instance._state.adding:  # noqa: SLF001
            self._merge()

    @cached_property
    def changed_data(self) -> list[str]:
        """What the person touched: what they sent against what their page had shown."""
        if self.instance._state.adding:  # noqa: SLF001
            return super().changed_data
        return [name for name, field in self.fields.items() if self._is_touched(name, field)]

    def _is_touched(self, name: str, field: forms.Field) -> bool:
        if isinstance(field, forms.ModelMultipleChoiceField):
            return set(self._sent(name)) != set(self._shown(name))
        bound: Any = self[name]
        return bool(bound._has_changed())  # noqa: SLF001 - what Django's own list asks

    def _merge(self) -> None:
        """Under the row's lock, which the admin's transaction holds until all is written."""
        self.data = cast(QueryDict, self.data).copy()
        if not self._shown_came():
            self.add_error(None, _("请求没有带上页面打开时的内容，没有保存。请刷新页面后再改。"))
            return
        rows = type(self.instance)._default_manager  # noqa: SLF001
        row = rows.select_for_update(no_key=True).filter(pk=self.instance.pk).first()
        if row is None:
            self.add_error(None, _("它刚才已被删除，没有保存。"))
            return
        now = model_to_dict(row, fields=[name for name, _field in self._compared()])
        touched = set(self.changed_data)
        for name, field in self._compared():
            current = _offered(field, now[name])
            if not _differ(field, current, self._shown(name)):
                continue
            if name not in touched:
                # whatever else is wrong, the page that comes back shows what is so now
                self._put(name, current)
                self._put(name, current, shown=True)
                self.errors.pop(name, None)
                self.cleaned_data[name] = field.clean(_plain(field, current))
            elif name in self.cleaned_data and _differ(field, current, self._sent(name)):
                self.add_error(name, self._conflict(name, current))
                self._put(name, current, shown=True)

    def _shown_came(self) -> bool:
        """Whether the page's value of each field was sent along.

        The page that comes back must not make up for it: Django would put there what was just
        sent, so that the next time nothing seems touched.
        """
        for name, field in self._compared():
            if self[name].html_initial_name in self.data:
                continue
            if isinstance(field, forms.ModelMultipleChoiceField):
                # of several values none is a value too, and sends nothing
                self._put(name, [], shown=True)
            else:
                field.show_hidden_initial = False
        return all(field.show_hidden_initial for _name, field in self._compared())

    def _sent(self, name: str) -> Any:
        """A field's value as it came."""
        return self[name].data

    def _shown(self, name: str) -> Any:
        """The value that the page had shown; of related rows those that may be chosen."""
        field = self.fields[name]
        came = self._widget_data_value(field.hidden_widget(), self[name].html_initial_name)  # type: ignore[attr-defined]
        if isinstance(field, forms.ModelMultipleChoiceField):
            offered = {str(pk) for pk in _rows(field).values_list("pk", flat=True)}
            return [key for key in came or () if key in offered]
        return came

    def _put(self, name: str, value: Any, *, shown: bool = False) -> None:
        """Make `value` what was sent, or what the page had shown."""
        data = cast(QueryDict, self.data)
        field = self.fields[name]
        key = self[name].html_initial_name if shown else self[name].html_name
        plain = _plain(field, value)
        if isinstance(plain, list):
            data.setlist(key, [str(one) for one in plain])
        elif isinstance(field, forms.BooleanField) and not shown and not plain:
            data.pop(key, None)
        else:
            data[key] = "" if plain is None else str(plain)

    def _conflict(self, name: str, current: Any) -> str:
        field = self.fields[name]
        values = {
            "now": _words(field, name, field.clean(_plain(field, current))),
            "yours": _words(field, name, self.cleaned_data[name]),
        }
        last = last_change(family=self.family, row_id=self.instance.pk, name=name)
        if last is None:
            text = _(
                "您打开页面之后，这一项已被他人改为“%(now)s”，您填的是“%(yours)s”。"
                "请核对；再次保存即以您填的为准。"
            )
            return text % values
        values["who"] = actor_words(last.actor_name, _)
        values["when"] = f"{timezone.localtime(last.at):%m-%d %H:%M:%S}"
        text = _(
            "您打开页面之后，%(who)s 在 %(when)s 把这一项改为“%(now)s”，您填的是“%(yours)s”。"
            "请核对；再次保存即以您填的为准。"
        )
        return text % values


def _words(field: forms.Field, name: str, value: Any) -> str:
    """A cleaned value for the person who reads the error."""
    if isinstance(field, forms.ModelMultipleChoiceField):
        words = _("、").join(field.label_from_instance(row) for row in value)
        return words or value_words(name, [])
    if isinstance(field, forms.ModelChoiceField):
        return str(value)
    return value_words(name, value)


def _offered(field: forms.Field, value: Any) -> Any:
    """Of several related rows those that this form lets one choose."""
    if isinstance(field, forms.ModelMultipleChoiceField):
        return list(_rows(field).filter(pk__in=[row.pk for row in value]))
    return value


def _rows(field: forms.Field) -> QuerySet[Any]:
    return cast(QuerySet[Any], cast(Any, field).queryset)


def _plain(field: forms.Field, value: Any) -> Any:
    """A value as a widget takes it: keys of rows, text of JSON."""
    plain = field.prepare_value(value)
    return list(plain) if isinstance(plain, list | tuple | set) else plain


def _differ(field: forms.Field, value: Any, sent: Any) -> bool:
    """Whether a value of the row is not what was sent."""
    if isinstance(field, forms.ModelMultipleChoiceField):
        return {str(row.pk) for row in value} != {str(one) for one in sent or ()}
    return bool(field.has_changed(value, sent))
