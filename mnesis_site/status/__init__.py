"""How the site is: probes, readiness, health."""
