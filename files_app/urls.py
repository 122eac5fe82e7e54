"""Addresses of the pages about files and their parts."""

from django.urls import path

from files_app import views

urlpatterns = [
    path("projects/<str:project_id>/files/", views.project_files, name="project-files"),
    path("assistants/<str:assistant_id>/picture/", views.assistant_picture, name="assistant-picture"),
    path("sessions/<str:session_id>/picture/", views.session_picture, name="session-picture"),
    path("files/", views.file_list, name="files"),
    path("files/rows/", views.file_rows, name="file-rows"),
    path("files/<str:file_id>/", views.file_page, name="file"),
    path("files/<str:file_id>/lines/", views.file_lines, name="file-lines"),
    path("files/<str:file_id>/picture/", views.file_picture, name="file-picture"),
    path("shared/<str:token>/files/<str:file_id>/", views.shared_file, name="shared-file"),
    path("files/<str:file_id>/references/", views.file_references, name="file-references"),
]
