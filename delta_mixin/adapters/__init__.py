"""Savers with safe cleanup, ready to use; short, to be copied from."""
