"""Text with markup: HTML, Markdown, XML."""
