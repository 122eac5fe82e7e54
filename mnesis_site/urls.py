"""Every address: the site's own, the API, and each app's pages."""

from django.contrib import admin
from django.urls import include, path, re_path
from django.views.i18n import set_language

from mnesis_site import languages, views
from mnesis_site.endpoints import anthropic_api, api, openai_api, rpc
from mnesis_site.people import administration as _administration  # noqa: F401 - registers its pages
from mnesis_site.people import views as people

admin.autodiscover()

urlpatterns = [
    re_path(r"^static/(?:[0-9a-f]{12}/)?(?P<name>.+)$", views.other_static, name="other-static"),
    path("favicon.ico", views.favicon, name="favicon"),
    path("language/", set_language, name="language"),
    path("language/<str:code>/<str:digest>/texts.js", languages.script_texts, name="script-texts"),
    path("health/", views.health, name="health"),
    path("health/verify/", views.verify_everything, name="verify-everything"),
    path("sign-in/", views.sign_in, name="sign-in"),
    path("sign-in/link/<str:key>/<str:token>/", views.sign_in_link, name="sign-in-link"),
    path("sign-out/", views.sign_out, name="sign-out"),
    path("welcome/<str:key>/<str:token>/", people.welcome, name="welcome"),
    path("people/", people.list_page, name="people"),
    path("people/options/", people.options, name="people-options"),
    path("people/invite/", people.invite, name="invite"),
    path("people/groups/", people.group_list, name="groups"),
    path("people/groups/<int:group_id>/", people.group, name="group"),
    path("people/groups/<int:group_id>/delete/", people.group_delete, name="group-delete"),
    path("people/groups/<int:group_id>/members/", people.add_member, name="group-member-add"),
    path("people/groups/<int:group_id>/candidates/", people.candidates, name="group-candidates"),
    path(
        "people/groups/<int:group_id>/members/<int:account_id>/remove/",
        people.remove_member,
        name="group-member-remove",
    ),
    path("people/<int:account_id>/", people.person, name="person"),
    path("people/<int:account_id>/limits/", people.limits, name="person-limits"),
    path("people/<int:account_id>/link/", people.new_link, name="person-link"),
    path("people/<int:account_id>/sign-out/", people.sign_out, name="person-sign-out"),
    path("people/<int:account_id>/close/", people.close, name="person-close"),
    path("people/<int:account_id>/reopen/", people.reopen, name="person-reopen"),
    path("people/<int:account_id>/keys/", people.make_key, name="person-key-make"),
    path("people/<int:account_id>/keys/<str:prefix>/revoke/", people.revoke, name="person-key-revoke"),
    path("password/", views.set_password, name="set-password"),
    path("admin/password_change/", views.set_password, name="administration-password"),
    path("admin/", admin.site.urls),
    path("api/", api.urls),
    path("v1/", openai_api.urls),
    path("v1/", anthropic_api.urls),
    path("rpc", rpc, name="rpc"),
    path("", include("sessions_app.urls")),
    path("", include("compaction_app.urls")),
    path("", include("files_app.urls")),
    path("", include("agents_app.urls")),
    path("", include("audit_app.urls")),
]

handler400 = "mnesis_site.errors.bad_request"
handler403 = "mnesis_site.errors.permission_denied"
handler404 = "mnesis_site.errors.page_not_found"
handler500 = "mnesis_site.errors.server_error"
