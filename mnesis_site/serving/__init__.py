"""The web server and worker as processes, and what stands in front of every endpoint."""
