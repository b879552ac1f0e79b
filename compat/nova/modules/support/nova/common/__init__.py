"""Parts of Nova that several OpenStack projects had: names from before Essex m4."""
