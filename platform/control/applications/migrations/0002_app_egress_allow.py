from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("applications", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="app",
            name="egress_allow",
            field=models.JSONField(blank=True, default=list, help_text="Names, for egress allowlist: normal form"),
        ),
    ]
