"""The kinds of files: each module has one ``explore``. What it is called and which version it has stands in ``detection.KINDS``."""
