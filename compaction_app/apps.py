from django.apps import AppConfig


class CompactionConfig(AppConfig):
    name = "compaction_app"
    verbose_name = "Compaction"
