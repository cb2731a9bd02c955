"""The eight components of a method, and the method that holds them."""
