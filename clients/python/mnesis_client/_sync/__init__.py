"""The client that blocks. unasync makes its modules from those in _async: do not edit them, run make format."""
