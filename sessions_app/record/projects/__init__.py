"""Projects: folders of sessions with instructions, a model, files and members."""
