"""Search without a database: the words of texts, exact queries, and questions with the ranking of their answers."""
