"""The dashboard's forms.

They check shape only: the services decide and say why not, and `refused` shows that beside the field.
"""

from __future__ import annotations

from django import forms

from control.applications.names import SLUG_MAX, SLUG_RULE
from control.errors import UserError

PASSWORD_MAX = 4096  # hashing cost does not grow with it, reading it does
NAME_MAX = 100
WORDS_MAX = 10_000
SECONDS_MAX = 10 * 366 * 86_400  # the services know the real bound; this one keeps the number a number


def refused(form: forms.Form, error: UserError, field: str | None = None) -> None:
    """Show a service's refusal beside its field, or above the form."""
    form.add_error(field, forms.ValidationError(error.message, code=error.code))


class SignInForm(forms.Form):
    """Who signs in."""

    email = forms.EmailField(
        label="E-mail",
        max_length=254,
        widget=forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True}),
    )
    password = forms.CharField(
        label="Password",
        max_length=PASSWORD_MAX,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )


class SignUpForm(forms.Form):
    """A new person."""

    email = forms.EmailField(
        label="E-mail",
        max_length=254,
        widget=forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True}),
    )
    password = forms.CharField(
        label="Password",
        max_length=PASSWORD_MAX,
        strip=False,
        help_text="At least 10 characters.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )


class PasswordForm(forms.Form):
    """Another password for whoever knows the old one."""

    old_password = forms.CharField(
        label="Current password",
        max_length=PASSWORD_MAX,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    new_password = forms.CharField(
        label="New password",
        max_length=PASSWORD_MAX,
        strip=False,
        help_text="At least 10 characters.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )


class AppForm(forms.Form):
    """A new app."""

    name = forms.CharField(
        label="Name",
        max_length=200,  # the service states the rule; this only bounds what is read
        help_text=f"{SLUG_RULE[0].upper()}{SLUG_RULE[1:]}. It becomes the address.",
        widget=forms.TextInput(
            attrs={
                "autocomplete": "off",
                "autocapitalize": "none",
                "spellcheck": "false",
                "maxlength": str(SLUG_MAX),
                "placeholder": "my-app",
            }
        ),
    )


class PolicyForm(forms.Form):
    """When an app sleeps."""

    idle_period_s = forms.IntegerField(
        label="Sleep after (seconds idle)",
        min_value=0,
        max_value=SECONDS_MAX,
        help_text="With nothing in flight for this long it is paused: no more charges, its memory stays ready.",
        widget=forms.NumberInput(attrs={"inputmode": "numeric"}),
    )
    suspend_after_s = forms.IntegerField(
        label="Then keep it ready for (seconds)",
        min_value=0,
        max_value=SECONDS_MAX,
        help_text="After that its memory goes to disk; waking takes a little longer.",
        widget=forms.NumberInput(attrs={"inputmode": "numeric"}),
    )
    waiting_page = forms.BooleanField(
        label="Show browsers a page while it wakes",
        required=False,
        help_text="It says what is happening and goes on by itself. Otherwise, and for programs always, requests wait.",
    )
    robots_wake = forms.BooleanField(
        label="Monitors and crawlers wake it",
        required=False,
        help_text="Otherwise they get 503 while it sleeps, and do not keep it awake.",
    )
    no_wake_paths = forms.CharField(
        label="Paths that do not wake it",
        required=False,
        max_length=WORDS_MAX,
        help_text="One a line, such as /health or /cron/* (all below it).",
        widget=forms.Textarea(attrs={"rows": 3, "autocapitalize": "none", "spellcheck": "false"}),
    )
    no_wake_methods = forms.CharField(
        label="Methods that do not wake it",
        required=False,
        max_length=WORDS_MAX,
        help_text="Such as HEAD OPTIONS.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )


class DeleteForm(forms.Form):
    """Deleting asks for the name, so that no slip of the hand does it."""

    name = forms.CharField(
        label="Type the app's name to delete it",
        max_length=200,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )


class TokenForm(forms.Form):
    """A new API token."""

    name = forms.CharField(
        label="What is it for?",
        max_length=NAME_MAX,
        widget=forms.TextInput(attrs={"autocomplete": "off", "placeholder": "laptop"}),
    )
