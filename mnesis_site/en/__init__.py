"""How dates are written where no page says how: in the administration."""
