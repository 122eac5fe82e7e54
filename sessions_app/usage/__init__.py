"""What was spent, what may be spent, and the page that shows both."""
