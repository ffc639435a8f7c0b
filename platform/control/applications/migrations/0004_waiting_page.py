from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("applications", "0003_wake_policy"),
    ]

    operations = [
        migrations.AddField(
            model_name="app",
            name="waiting_page",
            field=models.BooleanField(
                db_default=False, default=False, help_text="Whether browsers see a page while it wakes"
            ),
        ),
    ]
