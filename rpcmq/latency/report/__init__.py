"""What a person sees of the dispatch log: page, pictures, text."""
