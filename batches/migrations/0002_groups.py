"""The three groups of a new installation, with the permissions they need."""

from django.db import migrations

# Django creates permissions only after all migrations have run, and on a new database this
# one runs before that. So the rows are made here, exactly as `create_permissions` would name
# them: it finds them later and leaves them alone.
VIEWER, OPERATOR, SUPERVISOR = "观察员", "运营", "主管"
MANAGED = ("gateway", "account", "contact")
OPERATOR_VERBS = ("operate_job", "cancel_job", "reconcile_item")


def _permissions(apps, alias):
    """Codename → permission of this app, each created if it is missing."""
    content_type_model = apps.get_model("contenttypes", "ContentType")
    permission_model = apps.get_model("auth", "Permission")
    found = {}
    for model in apps.get_app_config("batches").get_models():
        options = model._meta
        content_type, _made = content_type_model.objects.using(alias).get_or_create(
            app_label="batches", model=options.model_name
        )
        wanted = [
            (f"{action}_{options.model_name}", f"Can {action} {options.verbose_name_raw}")
            for action in options.default_permissions
        ]
        wanted += [(codename, str(label)) for codename, label in options.permissions]
        for codename, label in wanted:
            found[codename], _made = permission_model.objects.using(alias).get_or_create(
                content_type=content_type, codename=codename, defaults={"name": label}
            )
    return found


def make_groups(apps, schema_editor):
    alias = schema_editor.connection.alias
    group_model = apps.get_model("auth", "Group")
    permissions = _permissions(apps, alias)
    view = {name for name in permissions if name.startswith("view_")}
    operate = view | set(OPERATOR_VERBS)
    manage = {f"{act}_{model}" for act in ("add", "change", "delete") for model in MANAGED}
    supervise = operate | {"approve_job", "terminate_job"} | manage
    # A group of that name that exists already keeps what it has.
    for name, codenames in ((VIEWER, view), (OPERATOR, operate), (SUPERVISOR, supervise)):
        group, _made = group_model.objects.using(alias).get_or_create(name=name)
        group.permissions.add(*(permissions[codename] for codename in sorted(codenames)))


class Migration(migrations.Migration):

    dependencies = [
        ("batches", "0001_initial"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    # Going back leaves the groups: people are members of them.
    operations = [migrations.RunPython(make_groups, migrations.RunPython.noop)]
