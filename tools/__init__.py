"""What developers run by hand: nothing here is part of the package."""
