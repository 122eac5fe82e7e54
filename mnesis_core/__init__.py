"""Values and decisions of Mnesis: pure Python, no Django, no clock, no database, no network."""
