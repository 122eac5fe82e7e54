"""The pages of sessions and what they are drawn with."""
