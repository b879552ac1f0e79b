"""The dispatch log and what is made of it: its format, its shipper, its reports."""
