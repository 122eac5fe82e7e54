"""The lineage of summaries: what each of their sentences rests on."""
