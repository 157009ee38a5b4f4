"""Printers: legal programs as text, by tables from nodes to what is written for them."""
