"""What a search looks for: the words of texts, exact queries, and questions with the ranking of what answers them."""
