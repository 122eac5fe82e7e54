"""The database below the record: threads, connections, outages, and the plain SQL of hot paths.

Warning: ``tables``, ``group_commit`` and ``threads`` use interfaces that Django and psycopg_pool keep private or do
not document: the compiler's ``select`` and ``annotation_col_map``, cursors below Django's own, a connection put into
``connections`` and its ``run_on_commit``, ``connections.create_connection`` and the pool's queue. They buy the speed of
appending, reading a context and committing. Run tests/sessions_app on both databases whenever one of these is upgraded.
"""
