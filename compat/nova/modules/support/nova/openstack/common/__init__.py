"""What several OpenStack projects had in common."""
