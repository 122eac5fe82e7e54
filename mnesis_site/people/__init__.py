"""The people of a site, for the staff who look after their accounts; and the links by which they choose a password."""
