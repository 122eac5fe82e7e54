"""How German writes dates and sums of money.

Django looks for any format here, by its name: the ones that settings have, with the largest unit first as in the administration,
and those that pages name as letters.
"""

DATE_FORMAT = "Y-m-d"
DATETIME_FORMAT = "Y-m-d H:i:s"
MONEY_FORMAT = "%s\N{NO-BREAK SPACE}$"
globals().update(
    {
        "j M": "j. N",
        "j M Y": "j. N Y",
        "j M Y H:i": "j. N Y H:i",
        "j M Y, H:i": "j. N Y, H:i",
        "j M Y, H:i:s": "j. N Y, H:i:s",
        "j M, H:00": "j. N, H:00",
        "j F Y": "j. F Y",
        "j F Y, H:i": "j. F Y, H:i",
    }
)
