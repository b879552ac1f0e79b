"""Parts of Nova that came from OpenStack."""
