"""One module per kind of file, or for a few that are alike. Each defines ``explore(source: Source) -> Findings``, or one such
function for each of its kinds; ``KINDS`` in ``mnesis_core.files.detection`` says which. It raises ``Unreadable`` when the
file is not what its kind says, and takes bounded time and memory whatever the file holds.
"""
