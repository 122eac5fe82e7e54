"""How dates are written in the administration, where no page says how: the largest unit first."""

DATE_FORMAT = "Y-m-d"
DATETIME_FORMAT = "Y-m-d H:i:s"
