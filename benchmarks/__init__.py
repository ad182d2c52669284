"""What headrace can do, measured on the machine at hand. `make bench` runs everything here."""
