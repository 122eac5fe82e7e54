"""One module per kind of file. Each defines ``explore(source: Source) -> Findings``, which raises ``Unreadable`` when the
file is not what its kind says, and takes bounded time and memory whatever the file holds.
"""
