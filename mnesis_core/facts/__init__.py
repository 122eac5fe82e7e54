"""Facts: what was said and holds until it is superseded or withdrawn, each bound to the words it rests on."""
