"""How rows may change: the rules, and the triggers and rights that are made from them."""
