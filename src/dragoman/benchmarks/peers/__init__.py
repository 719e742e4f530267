"""Other toolkits that the benchmarks measure us against."""
