"""Finds or installs what `make` needs beyond Python: Node for the site's build, a browser for the tests."""
