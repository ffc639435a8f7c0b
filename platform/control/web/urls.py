"""The dashboard's addresses. Names are reached as `web:<name>`; everything that changes something takes POST only."""

from __future__ import annotations

from django.urls import path

from control.web import views_account, views_app, views_apps

app_name = "web"

urlpatterns = [
    path("", views_apps.apps, name="apps"),
    path("live/", views_apps.apps_live, name="apps-live"),
    path("new/", views_apps.new_app, name="new-app"),
    path("apps/<slug:name>/", views_app.app, name="app"),
    path("apps/<slug:name>/live/", views_app.app_live, name="app-live"),
    path("apps/<slug:name>/sleep/", views_app.sleep, name="sleep"),
    path("apps/<slug:name>/wake/", views_app.wake, name="wake"),
    path("apps/<slug:name>/policy/", views_app.policy, name="policy"),
    path("apps/<slug:name>/delete/", views_app.delete, name="delete"),
    path("apps/<slug:name>/deploys/<int:number>/", views_app.deploy, name="deploy"),
    path("apps/<slug:name>/deploys/<int:number>/live/", views_app.deploy_live, name="deploy-live"),
    path("apps/<slug:name>/deploys/<int:number>/log/", views_app.deploy_log, name="deploy-log"),
    path("login/", views_account.login, name="login"),
    path("logout/", views_account.logout, name="logout"),
    path("sign-up/", views_account.sign_up, name="sign-up"),
    path("tokens/", views_account.tokens, name="tokens"),
    path("tokens/<int:token_id>/revoke/", views_account.revoke_token, name="revoke-token"),
    path("account/", views_account.account, name="account"),
]
