"""The engines of an application process: its link to the router, its calls, the tasks that it serves."""
