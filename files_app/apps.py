"""Files outside the context, as an app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class FilesConfig(AppConfig):
    name = "files_app"
    verbose_name = _("Files")

    def ready(self) -> None:
        # Imported here, since apps.py is loaded before any model can be defined.
        from files_app import contents, intake, pictures, queries, store
        from sessions_app.record import file_port
        from sessions_app.search import index

        index.SOURCES["files"] = index.Source(
            table="file_references",
            field="exploration_summary",
            part_type="file",
            first_seq="after_message_seq",
            last_seq="after_message_seq",
        )
        file_port.use(
            file_port.FileStore(
                put_content=contents.put_content,
                store_reference=store.store_file_reference,
                prepare_file=intake.prepare_file,
                add_file=intake.add_file,
                read_content=queries.read_of_session,
                find_pictures=pictures.find_pictures,
            )
        )
